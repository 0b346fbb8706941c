"""For `haiworkspace diff`: two revisions of the cluster, and two versions of a file line by line."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from hai.client.errors import NotFound
from hai_sync.core.diff import Change, diff
from hai_sync.core.entry import Entry, Kind, Tree, below
from hai_sync.session.session import Session
from hai_sync.session.temp_fetch import borrowed

_TEXT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Revisions:
    """Two trees of the cluster."""

    numbers: tuple[int, int]
    old: Tree
    new: Tree

    @property
    def changes(self) -> tuple[Change, ...]:
        """What makes the newer one."""
        return diff(self.old, self.new)

    async def text(self, session: Session, path: str) -> str:
        """The difference of one path. Raises NotFound."""
        old, new = self.old.get(path), self.new.get(path)
        before, after = (f"revision {number}/{path}" for number in self.numbers)
        if old is None and new is None:
            raise NotFound(f"neither {before} nor {after} is there")
        if old == new:
            return ""
        if too_large(old, new):
            return f"{before} and {after} differ; they are too large to be shown by lines\n"
        texts = [
            await fetched(session, number, path, entry)
            for number, entry in zip(self.numbers, (old, new), strict=True)
        ]
        return unified(before, after, *texts)


async def compared(session: Session, wanted: Sequence[str]) -> Revisions:
    """Of two numbers or tags; of one, beside what is on the cluster now. Raises NotFound."""
    first, second = [await session.remote.number_of(each) for each in (*wanted, "0")[:2]]
    old_number, old = await session.remote.tree({}, 0, first)
    new_number, new = await session.remote.tree({}, 0, second)
    return Revisions((old_number, new_number), old, new)


def too_large(*entries: Entry | None) -> bool:
    """Whether nobody would read the difference."""
    return max((entry.size for entry in entries if entry is not None), default=0) > _TEXT_BYTES


async def fetched(session: Session, revision: int, path: str, entry: Entry | None) -> bytes:
    """What the cluster has there; of a link where it leads, nothing of a directory."""
    if entry is None or entry.kind is not Kind.FILE:
        return b"" if entry is None else entry.target.encode()
    async with borrowed(session.remote, revision, {path: entry}) as place:
        return await asyncio.to_thread(place(path).read_bytes)


def within(changes: Sequence[Change], name: str) -> list[Change]:
    """Those of one path and of what is in it; of the root all."""
    return [change for change in changes if not name or below(change.path, name)]


def unified(before: str, after: str, old: bytes, new: bytes) -> str:
    """As `diff -u` has it; of what differs otherwise a line in words."""
    if b"\0" in old or b"\0" in new:
        return f"{before} and {after} differ; they are no text\n"
    lines = list(difflib.unified_diff(_lines(old), _lines(new), before, after))
    if not lines:
        return f"{before} and {after} differ in what they are, or in the executable bit\n"
    text = "".join(line if line.endswith("\n") else line + "\n" for line in lines)
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _lines(data: bytes) -> list[str]:
    """Two bytes that are no UTF-8 are not the same for it."""
    return data.decode("utf-8", "surrogateescape").splitlines(keepends=True)
