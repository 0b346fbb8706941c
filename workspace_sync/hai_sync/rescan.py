"""A scan again, after a look at some paths only: what a daemon does when files are saved."""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import cached_property

from hai_sync.core.entry import DIRECTORY, Kind, Tree, ancestors
from hai_sync.core.ignore import FILES
from hai_sync.errors import GONE
from hai_sync.file_fingerprint import DIRECTORY_SIGNATURE, signature
from hai_sync.scan import Filter, Known, Scan, Walker


def rescan(
    before: Scan, paths: Iterable[str], filter: Filter, base: Callable[[], Tree] = dict
) -> Scan | None:
    """The same after a look at some paths only. None: rules have changed, all must be looked at."""
    if any(path.rpartition("/")[2] in FILES for path in paths):
        return None
    known = Known(before.signatures, lambda: before.tree, before.looked_ns, base=base)
    walker = Walker(before.root, known, filter)
    found = walker.found
    found.before = before
    found.signatures, found.levels = dict(before.signatures), dict(before.levels)
    walker.ignore.levels = found.levels
    found.problems, found.skipped = dict(before.problems), dict(before.skipped)
    found.copied = dict(before.copied)
    found.tree = dict(before.tree)
    again = _Again(walker, found)
    for path in sorted(set(paths)):
        again.look(path)
    found.gone -= found.signatures.keys()  # a directory that is a file now, say
    found.tree.update(found.fresh)
    return found


class _Again:
    """A look at one path after the other."""

    def __init__(self, walker: Walker, found: Scan) -> None:
        self._walker = walker
        self._found = found

    @cached_property
    def _ordered(self) -> list[str]:
        """Sorted, what lies below a directory is found without a look at everything."""
        return sorted(self._found.tree)

    def look(self, path: str) -> None:
        """What is there now, with all that is in it."""
        walker, found = self._walker, self._found
        if walker.ignore.hides(path, False) or self._lies_elsewhere(path):
            return
        at = os.path.join(found.root, path)
        try:
            self._look_at(path, at, os.lstat(at))
        except GONE:
            self._forget(path)

    def _look_at(self, path: str, at: str, status: os.stat_result) -> None:
        walker, found = self._walker, self._found
        if stat.S_ISDIR(status.st_mode):
            if walker.ignore.hides(path, True):
                return
            self._forget(path, but_itself=True)
            walker.see(path, at, status, signature(status))
            walker.walk(path, False)
        else:
            if found.tree.get(path) == DIRECTORY:
                self._forget(path)
            found.problems.pop(path, None)
            found.skipped.pop(path, None)
            found.copied.pop(path, None)
            walker.see(path, at, status, signature(status))
            if found.signatures.get(path) == DIRECTORY_SIGNATURE:  # which a link leads to
                walker.walk(path, False)
            self._see_parents(path)

    def _lies_elsewhere(self, path: str) -> bool:
        """What is behind a link has another name, or is not ours at all; what is in the way is told of by itself."""
        found = self._found
        above = (found.fresh.get(each) or found.tree.get(each) for each in ancestors(path))
        return any(entry is not None and entry.kind is not Kind.DIRECTORY for entry in above)

    def _see_parents(self, path: str) -> None:
        """A file may be told of before the directory that it lies in."""
        folder = path.rpartition("/")[0]
        if folder and folder not in self._found.tree and folder not in self._found.fresh:
            self.look(folder)

    def _forget(self, path: str, but_itself: bool = False) -> None:
        found = self._found
        for each in [*self._below(path), *([] if but_itself else [path])]:
            if found.tree.pop(each, None) is not None:
                found.gone.add(each)
            found.signatures.pop(each, None)
            found.problems.pop(each, None)
            found.skipped.pop(each, None)
            found.fresh.pop(each, None)

    def _below(self, path: str) -> list[str]:
        entry = self._found.tree.get(path)
        if entry is None or entry.kind is not Kind.DIRECTORY:
            return []
        begin, end = (bisect_left(self._ordered, path + after) for after in "/0")  # 0 follows /
        return self._ordered[begin:end]
