"""The users of each share, and shares in the directory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hai_backend.auth.directory import Directory
from hai_backend.auth.entitlements import shares_with_users
from hai_backend.domain.accounts.user import Role, Share, User
from hai_backend.domain.errors import HaiError, NotFound
from hai_backend.domain.scheduling.snapshot import ShareRow
from hai_backend.store.memory.store import MemoryStore

VISION = Share("vision", "default", 3, 2, 8)
SPEECH = Share("speech", "default", 1)
ELSEWHERE = Share("speech", "big")


def members(users: list[User], *shares: Share) -> dict[tuple[str, str], set[str]]:
    rows = shares_with_users(users, {(s.user_group, s.group): s for s in shares})
    return {(row.name, row.group): set(row.users) for row in rows}


@pytest.mark.parametrize(
    ("groups", "counted"),
    [
        pytest.param((), set(), id="in no group"),
        pytest.param(("staff",), set(), id="in a group without a share"),
        pytest.param(("vision",), {"vision"}, id="in one"),
        pytest.param(("vision", "speech"), {"vision"}, id="of two the first"),
        pytest.param(("speech", "vision"), {"speech"}, id="in the order of the user"),
        pytest.param(("staff", "speech"), {"speech"}, id="the first that has a share"),
    ],
)
def test_user_belongs_to_the_share_of_the_first_group(
    groups: tuple[str, ...], counted: set[str]
) -> None:
    found = members([User("ada", groups=groups)], VISION, SPEECH)
    assert {name for (name, _), users in found.items() if users} == counted


def test_each_node_group_has_its_own_shares() -> None:
    ada = User("ada", groups=("vision", "speech"))
    assert members([ada], VISION, SPEECH, ELSEWHERE) == {
        ("vision", "default"): {"ada"},
        ("speech", "default"): set(),
        ("speech", "big"): {"ada"},
    }


def test_inactive_users_are_members_of_shares() -> None:
    eve = User("eve", groups=("vision",), active=False)
    assert members([eve], VISION) == {("vision", "default"): {"eve"}}


async def test_rows_follow_every_change_and_notify() -> None:
    rung: list[int] = []
    made = Directory(MemoryStore(), changed=lambda: rung.append(1))
    await made.load()
    await made.create_user(User("root", Role.ADMIN))
    assert made.share_rows() == ()
    await made.set_share(VISION)
    await made.set_share(SPEECH)
    await made.create_user(User("ada", groups=("vision",)))
    empty = ShareRow("speech", "default", frozenset(), guaranteed=1)
    assert made.share_rows() == (empty, ShareRow("vision", "default", frozenset({"ada"}), 3, 2, 8))
    await made.update_user(User("ada"))
    await made.set_share(replace(VISION, limit=None))
    assert made.share_rows()[1] == ShareRow("vision", "default", frozenset(), 3, 2, None)
    assert made.shares() == (SPEECH, replace(VISION, limit=None))
    await made.delete_share("vision", "default")
    assert made.share_rows() == (empty,)
    assert len(rung) == 7
    with pytest.raises(NotFound, match="vision has no share of group default"):
        await made.delete_share("vision", "default")
    assert len(rung) == 7


async def test_rows_are_computed_once_for_each_change() -> None:
    made = Directory(MemoryStore())
    await made.set_share(VISION)
    rows = made.share_rows()
    assert made.share_rows() is rows


async def test_shares_survive_a_restart() -> None:
    store = MemoryStore()
    made = Directory(store)
    await made.create_user(User("ada", groups=("vision",)))
    await made.set_share(VISION)
    again = Directory(store)
    assert again.share_rows() == ()
    await again.load()
    assert again.share_rows() == made.share_rows()


class _FullDisk(MemoryStore):
    async def save_record(self, record: object) -> None:
        raise HaiError("disk full")


async def test_share_that_was_not_stored_does_not_count() -> None:
    made = Directory(_FullDisk())
    with pytest.raises(HaiError):
        await made.set_share(VISION)
    assert (made.shares(), made.share_rows()) == ((), ())
