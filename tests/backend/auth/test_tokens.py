"""Tokens, run tokens, the user directory, and effective quotas."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.auth import tokens
from hai_backend.auth.directory import Directory
from hai_backend.auth.entitlements import effective_quotas
from hai_backend.domain.accounts.user import Quota, Role, Token, TokenScope, User
from hai_backend.domain.errors import Conflict, HaiError, NotFound, Unauthenticated
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import QuotaRow
from hai_backend.store.memory.store import MemoryStore

NOW = 1000.0


async def directory_with(*users: User) -> Directory:
    made = Directory(MemoryStore())
    await made.load()
    for user in users:
        await made.create_user(user)
    return made


def test_secrets_are_random_and_only_their_digest_is_stored() -> None:
    one, two = tokens.new_secret(), tokens.new_secret()
    assert one != two
    assert one.startswith("hai_")
    assert len(one) > 40
    assert tokens.digest_secret(one) != tokens.digest_secret(two)
    assert one not in tokens.digest_secret(one)


@pytest.mark.parametrize(
    ("header", "secret"),
    [
        ("Bearer abc", "abc"),
        ("bearer abc ", "abc"),
        (None, None),
        ("", None),
        ("abc", None),
        ("Basic abc", None),
    ],
)
def test_bearer_token_is_parsed(header: str | None, secret: str | None) -> None:
    if secret is not None:
        assert tokens.parse_bearer(header) == secret
        return
    with pytest.raises(Unauthenticated):
        tokens.parse_bearer(header)


@pytest.mark.parametrize(
    ("scene", "reason", "words"),
    [
        pytest.param("wrong", "UNAUTHENTICATED", "not known here", id="wrong"),
        pytest.param("empty", "UNAUTHENTICATED", "not known here", id="empty"),
        pytest.param(
            "expired", "TOKEN_EXPIRED", "the server's clock says 1970-01-01T00:16:50Z", id="expired"
        ),
        pytest.param("revoked", "TOKEN_REVOKED", "revoked", id="revoked"),
        pytest.param("inactive", "USER_INACTIVE", "not active", id="inactive"),
        pytest.param("good", "", "", id="good"),
    ],
)
async def test_each_cause_of_refusal_has_its_own_reason(
    scene: str, reason: str, words: str
) -> None:
    made = await directory_with(User("root", Role.ADMIN), User("ada"))
    token, secret = await made.create_token("ada", TokenScope.SUBMIT, NOW, expires_at=NOW + 10)
    if scene == "revoked":
        await made.revoke_token(token.id)
    if scene == "inactive":
        await made.update_user(User("ada", active=False))
    secret = {"wrong": "hai_x", "empty": ""}.get(scene, secret)
    now = NOW + 10 if scene == "expired" else NOW
    if scene == "good":
        identity = made.identify(secret, now)
        assert (identity.name, identity.scope, identity.token_id) == (
            "ada",
            TokenScope.SUBMIT,
            token.id,
        )
        return
    with pytest.raises(Unauthenticated, match=words) as caught:
        made.identify(secret, now)
    assert caught.value.reason == reason
    assert secret == "" or secret not in str(caught.value)


async def test_directory_survives_a_restart() -> None:
    store = MemoryStore()
    made = Directory(store)
    await made.load()
    secret = await made.bootstrap("root", NOW)
    await made.set_quota(Quota("root", False, "default", Priority.HIGH, 3))
    again = Directory(store)
    await again.load()
    assert secret is not None
    assert again.identify(secret, NOW).name == "root"
    assert again.quota_rows(NOW) == (QuotaRow("root", "default", Priority.HIGH, 3),)
    assert all(secret not in repr(token) for token in await store.tokens())


async def test_bootstrap_creates_one_admin() -> None:
    made = await directory_with()
    secret = await made.bootstrap("root", NOW)
    assert secret is not None
    assert made.identify(secret, NOW).administers
    assert await made.bootstrap("root", NOW) is None


async def test_interrupted_bootstrap_is_completed() -> None:
    made = await directory_with(User("root", Role.ADMIN))
    secret = await made.bootstrap("root", NOW)
    assert secret is not None
    assert made.identify(secret, NOW).administers


async def test_users_are_unique_and_one_admin_stays() -> None:
    made = await directory_with(User("root", Role.ADMIN, created_at=5.0))
    with pytest.raises(Conflict, match="already"):
        await made.create_user(User("root"))
    with pytest.raises(Conflict, match="last active admin"):
        await made.update_user(User("root", Role.USER))
    with pytest.raises(Conflict, match="last active admin"):
        await made.update_user(User("root", Role.ADMIN, active=False))
    with pytest.raises(NotFound):
        await made.update_user(User("nobody"))
    changed = await made.update_user(User("root", Role.ADMIN, groups=("g",), created_at=9.0))
    assert changed.created_at == 5.0


async def test_inactive_users_and_groups() -> None:
    made = await directory_with(User("root", Role.ADMIN), User("ada", groups=("g",)))
    assert made.inactive_users() == frozenset()
    await made.update_user(User("ada", active=False))
    assert made.inactive_users() == {"ada"}
    assert made.groups_of("ada") == ()
    assert made.groups_of("nobody") == ()


async def test_unknown_token_is_refused() -> None:
    made = await directory_with(User("ada"))
    with pytest.raises(NotFound):
        await made.revoke_token(5)
    with pytest.raises(NotFound):
        await made.create_token("bob", TokenScope.ALL, NOW)


class Counted:
    """A token that counts how often its user is read."""

    asked, holder, revoked = 0, "", False

    def __init__(self, number: int) -> None:
        self.id, self.secret_sha256 = number, str(number)

    @property
    def user(self) -> str:
        Counted.asked += 1
        return f"u{self.id}"


def test_tokens_of_a_user_are_found_without_a_scan() -> None:
    ring = tokens.Keyring()
    for number in range(100):
        ring.put(cast(Token, Counted(number)))
    Counted.asked = 0
    assert [token.id for token in ring.find_by_user("u7")] == [7]
    ring.remove(7)
    assert (ring.find_by_user("u7"), ring.find(7)) == ((), None)
    assert Counted.asked <= 2


async def test_tokens_are_found_by_user_and_holder() -> None:
    made = await directory_with(User("ada"), User("bob"))
    own, _ = await made.create_token("ada", TokenScope.ALL, NOW)
    lent, _ = await made.create_token("ada", TokenScope.ALL, NOW, holder="bob")
    assert (made.tokens_of("ada"), made.tokens_of("bob")) == ((lent, own), (lent,))
    await made.revoke_token(own.id)
    assert [(token.id, token.revoked) for token in made.tokens_of("ada")] == [
        (lent.id, False),
        (own.id, True),
    ]
    await made.delete_token(lent.id)
    assert [len(made.tokens_of(name)) for name in ("ada", "bob")] == [1, 0]


async def test_revoked_tokens_have_no_next_expiry() -> None:
    made = await directory_with(User("ada"))
    soon, _ = await made.create_token("ada", TokenScope.ALL, NOW, expires_at=NOW + 10)
    await made.create_token("ada", TokenScope.ALL, NOW, expires_at=NOW + 20)
    assert made.next_expiry(NOW) == NOW + 10
    await made.revoke_token(soon.id)
    assert made.next_expiry(NOW) == NOW + 20


ADA = User("ada", groups=("vision", "staff"))
OWN = Quota("ada", False, "default", Priority.HIGH, 1)
VISION = Quota("vision", True, "default", Priority.HIGH, 4)
STAFF = Quota("staff", True, "default", Priority.HIGH, 6)


@pytest.mark.parametrize(
    ("rows", "nodes"),
    [
        pytest.param([], None, id="no rows"),
        pytest.param([OWN, VISION, STAFF], 1, id="the own row beats group rows, even when smaller"),
        pytest.param([VISION, STAFF], 6, id="of groups the largest counts"),
        pytest.param([replace(OWN, expires_at=NOW), VISION], 4, id="an expired row does not count"),
        pytest.param(
            [replace(OWN, expires_at=NOW + 1), VISION], 1, id="one that is about to expire does"
        ),
        pytest.param([replace(VISION, subject="speech")], None, id="other groups do not count"),
        pytest.param(
            [replace(OWN, subject="vision")], None, id="a user named like a group is not the group"
        ),
        pytest.param(
            [replace(VISION, subject="ada")], None, id="a group named like the user is not the user"
        ),
    ],
)
def test_effective_quota_of_a_user(rows: list[Quota], nodes: int | None) -> None:
    found = effective_quotas(ADA, rows, NOW)
    assert found == (() if nodes is None else (QuotaRow("ada", "default", Priority.HIGH, nodes),))


def test_smallest_total_limit_counts() -> None:
    rows = [replace(q, priority=Priority.AUTO) for q in (VISION, STAFF)]
    assert effective_quotas(ADA, rows, NOW)[0].nodes == 4


async def test_quota_rows_follow_changes_and_the_clock() -> None:
    made = await directory_with(User("root", Role.ADMIN), ADA)
    await made.set_quota(replace(OWN, expires_at=NOW + 10))
    await made.set_quota(VISION)
    assert [row.nodes for row in made.quota_rows(NOW)] == [1]
    assert [row.nodes for row in made.quota_rows(NOW + 10)] == [4]
    await made.update_user(User("ada"))
    assert made.quota_rows_of("ada", NOW + 10) == ()
    await made.delete_quota("vision", True, "default", Priority.HIGH)
    with pytest.raises(NotFound, match="no quota"):
        await made.delete_quota("vision", True, "default", Priority.HIGH)


class _FullDisk(MemoryStore):
    async def save_user(self, user: User) -> None:
        raise HaiError("disk full")


async def test_change_that_was_not_stored_has_no_effect() -> None:
    made = Directory(_FullDisk())
    with pytest.raises(HaiError):
        await made.create_user(User("ada"))
    assert made.users() == ()


@given(
    st.binary(min_size=1),
    st.tuples(*[st.integers(0, 10**6)] * 3),
    st.tuples(*[st.integers(0, 10**6)] * 3),
)
def test_run_token_is_valid_for_one_rank_only(
    secret: bytes, one: tuple[int, int, int], two: tuple[int, int, int]
) -> None:
    token = tokens.run_token(secret, *one)
    assert tokens.is_run_token(secret, *one, token)
    assert tokens.is_run_token(secret, *two, token) == (one == two)
    assert not tokens.is_run_token(secret + b"x", *one, token)
    assert not tokens.is_run_token(secret, *one, token + "ü")
