"""Updates a scan at some paths only, as a daemon does when files are saved."""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import cached_property

from hai_sync.core.entry import DIRECTORY, Kind, Tree, ancestors
from hai_sync.core.ignore import RULE_FILES
from hai_sync.errors import NOT_FOUND
from hai_sync.file_fingerprint import DIRECTORY_FINGERPRINT, fingerprint
from hai_sync.scan import Filter, Scan, ScanCache, Walker


def rescan(
    previous: Scan, paths: Iterable[str], filter: Filter, base: Callable[[], Tree] = dict
) -> Scan | None:
    """Return a new scan that reads only some paths, or None if ignore rules changed, so that a full scan is needed."""
    if any(path.rpartition("/")[2] in RULE_FILES for path in paths):
        return None
    cache = ScanCache(
        previous.fingerprints, lambda: previous.tree, previous.scanned_at_ns, base=base
    )
    walker = Walker(previous.root, cache, filter)
    found = walker.found
    found.previous = previous
    found.fingerprints, found.rule_sets = dict(previous.fingerprints), dict(previous.rule_sets)
    walker.ignore.rule_sets = found.rule_sets
    found.problems, found.skipped = dict(previous.problems), dict(previous.skipped)
    found.copied_links = dict(previous.copied_links)
    found.tree = dict(previous.tree)
    rescanner = _Rescanner(walker, found)
    for path in sorted(set(paths)):
        rescanner.rescan_path(path)
    found.removed -= found.fingerprints.keys()  # for example a directory that is a file now
    found.tree.update(found.changed)
    return found


class _Rescanner:
    """Rescans one path after the other."""

    def __init__(self, walker: Walker, found: Scan) -> None:
        self._walker = walker
        self._found = found

    @cached_property
    def _sorted_paths(self) -> list[str]:
        """The paths of the tree, sorted, so that the paths below a directory are found by bisection."""
        return sorted(self._found.tree)

    def rescan_path(self, path: str) -> None:
        """Read a path and everything below it."""
        walker, found = self._walker, self._found
        if walker.ignore.is_hidden(path, False) or self._is_below_non_directory(path):
            return
        absolute = os.path.join(found.root, path)
        try:
            self._add_path(path, absolute, os.lstat(absolute))
        except NOT_FOUND:
            self._remove(path)

    def _add_path(self, path: str, absolute: str, status: os.stat_result) -> None:
        """Add a path that exists, with everything below it."""
        walker, found = self._walker, self._found
        if stat.S_ISDIR(status.st_mode):
            if walker.ignore.is_hidden(path, True):
                return
            self._remove(path, keep_itself=True)
            walker.add_path(path, absolute, status, fingerprint(status))
            walker.walk(path, False)
        else:
            if found.tree.get(path) == DIRECTORY:
                self._remove(path)
            found.problems.pop(path, None)
            found.skipped.pop(path, None)
            found.copied_links.pop(path, None)
            walker.add_path(path, absolute, status, fingerprint(status))
            # the target of a link with --links copy
            if found.fingerprints.get(path) == DIRECTORY_FINGERPRINT:
                walker.walk(path, False)
            self._add_parents(path)

    def _is_below_non_directory(self, path: str) -> bool:
        """Return whether a directory in a path is a link or a file. Then the tree lacks this path."""
        found = self._found
        above = (found.changed.get(each) or found.tree.get(each) for each in ancestors(path))
        return any(entry is not None and entry.kind is not Kind.DIRECTORY for entry in above)

    def _add_parents(self, path: str) -> None:
        """Rescan the directory of a path if it is new: the event of a file may arrive before that of its directory."""
        folder = path.rpartition("/")[0]
        if folder and folder not in self._found.tree and folder not in self._found.changed:
            self.rescan_path(folder)

    def _remove(self, path: str, keep_itself: bool = False) -> None:
        """Remove everything below a path from the tree, and the path itself unless `keep_itself`."""
        found = self._found
        for each in [*self._below(path), *([] if keep_itself else [path])]:
            if found.tree.pop(each, None) is not None:
                found.removed.add(each)
            found.fingerprints.pop(each, None)
            found.problems.pop(each, None)
            found.skipped.pop(each, None)
            found.changed.pop(each, None)

    def _below(self, path: str) -> list[str]:
        entry = self._found.tree.get(path)
        if entry is None or entry.kind is not Kind.DIRECTORY:
            return []
        # "0" is the character after "/"
        begin, end = (bisect_left(self._sorted_paths, path + after) for after in "/0")
        return self._sorted_paths[begin:end]
