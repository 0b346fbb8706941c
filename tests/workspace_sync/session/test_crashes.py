"""Two laptops and tasks edit one workspace at random, syncs die at any write; nothing is lost and all agree in the end.

After each sync, dead or alive: every content that was anywhere before it is on a side, kept here, or in a
revision; and no file on any side is anything but a whole content that somebody has written.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hai.client.errors import HaiError
from hai_sync.core.entry import Kind
from hai_sync.core.rules import Mode, Policy
from hai_sync.kept import Kept

SEEDS = range(6)
STEPS = 14
NAMES = ("a", "b", "d/a", "d/b", "d/e/a", "c")


class Crash(BaseException):
    """The process dies here: nobody may catch it."""


class Script:
    """One random story."""

    def __init__(self, seed: int, sides: list, cluster: Path) -> None:
        self.random = random.Random(seed)
        self.laptops = sides
        self.cluster = cluster
        self.written: set[bytes] = set()
        self.revisions: set[bytes] = set()
        self.seen_revision = 0

    def edit(self, root: Path) -> None:
        path = root / self.random.choice(NAMES)
        action = self.random.choice(["write", "write", "write", "remove", "swap"])
        if action == "remove":
            if path.is_file():
                path.unlink()
            return
        if any(parent.is_file() for parent in path.parents) or path.is_dir():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        content = self.random.randbytes(self.random.choice([1, 100, 3_000_000]))
        content = b"%d:" % len(self.written) + content
        self.written.add(content)
        if action == "swap":
            new = path.with_name(path.name + ".new")
            new.write_bytes(content)
            new.rename(path)
        else:
            path.write_bytes(content)

    async def everywhere(self) -> set[bytes]:
        """Contents that are on a side, kept, or in a revision."""
        found = set(self.laptops[0].there().values())
        for laptop in self.laptops:
            found |= set(laptop.read().values())
            kept = Kept(laptop.session.place.state / "kept")
            for version in kept.versions():
                at = kept.find(version.path, version.stamp)
                if at is not None and at.is_file():
                    found.add(at.read_bytes())
            held = laptop.session.place.own / "tmp"
            if held.is_dir():
                found |= {p.read_bytes() for p in held.iterdir() if p.name.startswith("held-")}
        return found | await self.in_revisions()

    async def in_revisions(self) -> set[bytes]:
        remote = self.laptops[0].session.remote
        by_digest = {blake(content): content for content in self.written}
        for revision in await remote.revisions(1000):
            if revision.number <= self.seen_revision:
                continue
            _, tree = await remote.tree({}, 0, revision.number)
            files = [e.digest for e in tree.values() if e.kind is Kind.FILE]
            self.revisions |= {by_digest[digest] for digest in files if digest in by_digest}
        return self.revisions

    async def sync(self, laptop) -> None:
        steps = self.random.choice([None, 0, 1, 2, 3, 5, 8])
        before = await self.everywhere()
        laptop.session.index.close()
        count = iter(range(steps)) if steps is not None else None

        def fault(step: str) -> None:
            if count is not None and next(count, None) is None:
                raise Crash(step)

        mode = self.random.choice([Mode.SYNC, Mode.SYNC, Mode.PUSH, Mode.PULL])
        policy = self.random.choice([Policy.KEEP_BOTH, Policy.REFUSE, Policy.LOCAL, Policy.REMOTE])
        try:
            await dying_sync(laptop, mode, policy, fault)
        except Crash:
            pass
        except HaiError as error:
            assert error.reason in ("REVISION_CHANGED", "UNREACHABLE"), error  # noqa: PT017
        after = await self.everywhere()
        lost = before - after
        assert not lost, [content[:10] for content in lost]
        for found in (laptop.read(), laptop.there()):
            torn = [path for path, content in found.items() if content not in self.written]
            assert not torn


def blake(content: bytes) -> bytes:
    from blake3 import blake3

    return blake3(content).digest()


async def dying_sync(laptop, mode: Mode, policy: Policy, fault) -> None:
    """A sync of a process of its own, which `fault` may end at any write here or while it sends."""

    class Ends:
        def stage(self, name: str, files: int, size: int) -> None:
            fault(name)

        def progress(self, files: int, size: int) -> None:
            fault("progress")

    from hai_sync.cli.opening import open_session
    from hai_sync.core.rules import Rules
    from hai_sync.session.wish import Wish

    session = open_session(laptop.session.place, laptop.session.remote.connection, Ends())
    session.fault = fault
    laptop.session = session
    wish = Wish(Rules(mode, policy), many_removals=True, partial=True, break_lease=True)
    await session.sync(wish)


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_is_lost_and_all_agree(seed: int, laptops) -> None:
    one, two = await laptops("one"), await laptops("two")
    script = Script(seed, [one, two], one.cluster)
    for _ in range(STEPS):
        for root in script.random.choices([one.root, two.root, one.cluster], k=3):
            script.edit(root)
        await script.sync(script.random.choice([one, two]))
    for _ in range(3):
        for laptop in (one, two):
            await laptop.sync(policy=Policy.KEEP_BOTH, many_removals=True, break_lease=True)
    assert one.read() == two.read() == one.there()
