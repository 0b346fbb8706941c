"""Tests random edits by two laptops and tasks, with syncs that die at any write: nothing is lost, and all sides agree.

After each sync, completed or not, every earlier content is on a side, in the version store, or in a
revision; and every file on any side has a complete content that was written at some time.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from hai.client.errors import HaiError
from hai_sync.core.entry import Kind
from hai_sync.core.reconcile_options import Mode, Policy
from hai_sync.session.options import NullListener, SyncOptions
from hai_sync.version_store import VersionStore

SEEDS = range(6)
STEPS = 14
NAMES = ("a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "c")


class Crash(BaseException):
    """The process dies here. No handler may catch this."""


class Script:
    """One random sequence of edits and syncs."""

    def __init__(self, seed: int, sides: list, cluster: Path) -> None:
        self.random = random.Random(seed)
        self.laptops = sides
        self.cluster = cluster
        self.written: set[bytes] = set()
        self.revisions: set[bytes] = set()
        self.observed_revision = 0

    def edit(self, root: Path) -> None:
        """Make one edit of a user or a program. An edit that is impossible now is skipped."""
        path = root / self.random.choice(NAMES)
        if not any(each.is_symlink() or each.is_file() for each in path.parents):
            self.random.choice(EDITS)(self, path)

    def content(self) -> bytes:
        """Return a content that was never written before."""
        size = self.random.choice([1, 100, 3_000_000])
        content = b"%d:" % len(self.written) + self.random.randbytes(size)
        self.written.add(content)
        return content

    def write(self, path: Path) -> None:
        """Write a file in place."""
        if not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True) if path.is_symlink() else None
            path.write_bytes(self.content())

    def swap(self, path: Path) -> None:
        """Replace a file as editors do. A link is replaced too."""
        if path.is_symlink() or not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(path.name + ".new")
            new.write_bytes(self.content())
            new.rename(path)

    def insert(self, path: Path) -> None:
        """Insert data near the start of a file, at its end, or after a hole."""
        if path.is_file() and not path.is_symlink():
            old, at = path.read_bytes(), self.random.choice([3, 1000, 10_000_000])
            content = old[:at] + b"%d," % len(self.written) + old[at:]
            content += bytes(self.random.choice([0, 2_000_000]))
            self.written.add(content)
            path.write_bytes(b"")
            with path.open("r+b") as file:
                for begin in range(0, len(content), 4096):
                    if any(block := content[begin : begin + 4096]):
                        os.pwrite(file.fileno(), block, begin)
                file.truncate(len(content))

    def remove(self, path: Path) -> None:
        """Remove a path with everything in it."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def empty(self, path: Path) -> None:
        """Replace a path by an empty directory."""
        self.remove(path)
        path.mkdir(parents=True, exist_ok=True)

    def link(self, path: Path) -> None:
        """Replace a file or directory by a link."""
        self.remove(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(self.random.choice(["a", "e", "nowhere"]))

    def rename(self, path: Path) -> None:
        """Rename a path to a free name, which may differ only in case. A directory moves with its contents."""
        name = self.random.choice(["c", "g", path.name.swapcase()])
        new = path.with_name(name)
        if os.path.lexists(path) and not os.path.lexists(new):
            path.rename(new)

    def mode(self, path: Path) -> None:
        """Change whether a file is executable."""
        if path.is_file() and not path.is_symlink():
            path.chmod(path.stat().st_mode ^ 0o111)

    async def everywhere(self) -> set[bytes]:
        """Return all contents on a side, in the version store, or in a revision."""
        found = set(self.laptops[0].on_cluster().values())
        for laptop in self.laptops:
            found |= set(laptop.read().values())
            kept = VersionStore(laptop.session.workspace.versions_dir)
            for version in kept.versions():
                at = kept.find(version.path, version.stamp)
                if at is not None and at.is_file():
                    found.add(at.read_bytes())
            temp_dir = laptop.session.workspace.private_dir / "tmp"
            if temp_dir.is_dir():
                found |= {p.read_bytes() for p in temp_dir.glob("held-*") if p.is_file()}
        return found | await self.in_revisions()

    async def in_revisions(self) -> set[bytes]:
        remote = self.laptops[0].session.remote
        by_digest = {blake(content): content for content in self.written}
        for revision in await remote.revisions(1000):
            if revision.number <= self.observed_revision:
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

        def fault_hook(step: str) -> None:
            if count is not None and next(count, None) is None:
                raise Crash(step)

        mode = self.random.choice([Mode.SYNC, Mode.SYNC, Mode.PUSH, Mode.PULL])
        policy = self.random.choice([Policy.KEEP_BOTH, Policy.REFUSE, Policy.LOCAL, Policy.REMOTE])
        try:
            await dying_sync(laptop, mode, policy, fault_hook)
        except Crash:
            pass
        except HaiError as error:
            assert error.reason in ("REVISION_CHANGED", "UNREACHABLE"), error  # noqa: PT017
        after = await self.everywhere()
        lost = before - after
        assert not lost, [content[:10] for content in lost]
        for found in (laptop.read(), laptop.on_cluster()):
            torn = [path for path, content in found.items() if content not in self.written]
            assert not torn


W = Script
EDITS = (W.write, W.write, W.swap, W.insert, W.remove, W.empty, W.link, W.rename, W.rename, W.mode)


def shape(root: Path) -> dict[str, object]:
    """Return everything except times: files with their modes, links, directories."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.split("/")[0] == ".hfai":
            continue
        if path.is_symlink():
            found[name] = path.readlink()
        else:
            found[name] = path.is_file() and (bool(path.stat().st_mode & 0o100), path.read_bytes())
    return found


def blake(content: bytes) -> bytes:
    from blake3 import blake3

    return blake3(content).digest()


async def dying_sync(laptop, mode: Mode, policy: Policy, fault_hook) -> None:
    """Sync in a separate process, which `fault` may end at any write or while it sends."""

    class Ends(NullListener):
        def stage(self, name: str, files: int, size: int) -> None:
            fault_hook(name)

        def progress(self, files: int, size: int) -> None:
            fault_hook("progress")

    from hai_sync.cli.session_factory import open_session
    from hai_sync.core.reconcile_options import Rules

    session = open_session(laptop.session.workspace, laptop.session.remote.connection, Ends())
    session.fault_hook = fault_hook
    laptop.session = session
    sync_options = SyncOptions(
        Rules(mode, policy), many_removals=True, partial=True, break_lease=True
    )
    await session.sync(sync_options)


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
    for laptop in (one, two, one):
        await laptop.sync(policy=Policy.KEEP_BOTH, many_removals=True, break_lease=True)
    assert shape(one.root) == shape(two.root) == shape(one.cluster)
