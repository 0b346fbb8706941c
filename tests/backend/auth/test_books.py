"""What is given to users and to their groups: found for each, and without a look at what is others'."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hai_backend.auth import quotas, rights
from hai_backend.auth.quotas import QuotaBook
from hai_backend.auth.rights import GrantBook
from hai_backend.domain.accounts.right import Grant
from hai_backend.domain.accounts.user import Quota, User
from hai_backend.domain.priority import Priority

NOW = 1000.0
NAMES = st.sampled_from(["ada", "bob", "vision", "staff"])  # users and groups may have one name
UNTIL = st.sampled_from([None, NOW, NOW + 1])
USERS = {
    name: User(name, groups=groups)
    for name, groups in (("ada", ("vision", "bob")), ("bob", ("vision", "staff")), ("staff", ()))
}
QUOTAS = st.builds(
    Quota,
    NAMES,
    st.booleans(),
    st.just("default"),
    st.sampled_from([Priority.HIGH, Priority.AUTO]),
    st.integers(0, 9),
    UNTIL,
)
GRANTS = st.builds(Grant, NAMES, st.booleans(), st.sampled_from(["cap:A", "cap:B"]), UNTIL)


@given(st.lists(QUOTAS), st.lists(QUOTAS))
def test_of_quotas_all_that_concern_a_user_count(put: list[Quota], removed: list[Quota]) -> None:
    book = filled(QuotaBook(USERS), put, removed)
    for user in USERS.values():
        assert book.rows(NOW)[user.name] == quotas.effective(user, book.all(), NOW)


@given(st.lists(GRANTS), st.lists(GRANTS))
def test_of_rights_all_that_concern_a_user_count(put: list[Grant], removed: list[Grant]) -> None:
    book = filled(GrantBook(), put, removed)
    for user in USERS.values():
        assert book.allowed(user, NOW) == rights.effective(user, book.all(), NOW)


def filled(book: Any, put: list[Any], removed: list[Any]) -> Any:
    for each in put:
        book.put(each)
    for each in removed:
        book.remove(each)
    return book


class Counted:
    """Given to one user; counts how often it is looked at."""

    subject_is_group, group, priority, right, nodes = False, "default", Priority.HIGH, "cap:A", 1
    looks = 0

    def __init__(self, number: int) -> None:
        self.subject = f"u{number}"

    @property
    def expires_at(self) -> float | None:
        Counted.looks += 1
        return None


def test_the_work_for_quotas_and_rights_grows_with_users_and_not_with_users_times_rows() -> None:
    users = {f"u{number}": User(f"u{number}") for number in range(100)}
    kept = [Counted(number) for number in range(100)]
    quota_book, grant_book = filled(QuotaBook(users), kept, []), filled(GrantBook(), kept, [])
    Counted.looks = 0
    assert [len(rows) for rows in quota_book.rows(NOW).values()] == [1] * 100
    assert {len(grant_book.allowed(user, NOW).rights) for user in users.values()} == {1}
    assert Counted.looks <= 5 * 100
