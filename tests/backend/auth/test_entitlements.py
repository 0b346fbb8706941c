"""Indexes of rights and quotas find the rows of a user without reading the rows of others."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hai_backend.auth.entitlements import (
    GrantIndex,
    QuotaIndex,
    effective_quotas,
    with_rights,
)
from hai_backend.domain.accounts.right import Grant
from hai_backend.domain.accounts.user import Quota, User
from hai_backend.domain.priority import Priority

NOW = 1000.0
NAMES = st.sampled_from(
    ["ada", "bob", "vision", "staff"]
)  # a user and a group may have the same name
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
def test_indexed_quotas_equal_a_full_scan(put: list[Quota], removed: list[Quota]) -> None:
    index = filled(QuotaIndex(USERS), put, removed)
    for user in USERS.values():
        assert index.by_user(NOW)[user.name] == effective_quotas(user, index.all(), NOW)


@given(st.lists(GRANTS), st.lists(GRANTS))
def test_indexed_rights_equal_a_full_scan(put: list[Grant], removed: list[Grant]) -> None:
    index = filled(GrantIndex(), put, removed)
    for user in USERS.values():
        assert index.with_rights(user, NOW) == with_rights(user, index.all(), NOW)


def filled(index: Any, put: list[Any], removed: list[Any]) -> Any:
    for each in put:
        index.put(each)
    for each in removed:
        index.remove(each)
    return index


class Counted:
    """A row of one user that counts how often it is read."""

    subject_is_group, group, priority, right, nodes = False, "default", Priority.HIGH, "cap:A", 1
    reads = 0

    def __init__(self, number: int) -> None:
        self.subject = f"u{number}"

    @property
    def expires_at(self) -> float | None:
        Counted.reads += 1
        return None


def test_cost_of_quotas_and_rights_is_linear_in_users() -> None:
    users = {f"u{number}": User(f"u{number}") for number in range(100)}
    kept = [Counted(number) for number in range(100)]
    quota_index, grant_index = filled(QuotaIndex(users), kept, []), filled(GrantIndex(), kept, [])
    Counted.reads = 0
    assert [len(rows) for rows in quota_index.by_user(NOW).values()] == [1] * 100
    assert {len(grant_index.with_rights(user, NOW).rights) for user in users.values()} == {1}
    assert Counted.reads <= 5 * 100
