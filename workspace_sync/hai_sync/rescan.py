"""A scan again, after a look at some paths only: what a daemon does when files are saved."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from hai_sync.core.entry import DIRECTORY, Kind, below
from hai_sync.core.ignore import FILES
from hai_sync.scan import Filter, Known, Scan, Walker, refuse_clashes
from hai_sync.signatures import signature


def rescan(before: Scan, paths: Iterable[str], filter: Filter) -> Scan | None:
    """The same after a look at some paths only. None: rules have changed, all must be looked at."""
    if any(path.rpartition("/")[2] in FILES for path in paths):
        return None
    known = Known(before.signatures, lambda: before.tree, before.looked_ns)
    walker = Walker(before.root, known, filter)
    found = walker.found
    found.before = before
    found.signatures, found.levels = dict(before.signatures), dict(before.levels)
    walker.ignore.levels = found.levels
    found.problems = dict(before.problems)
    found.tree = dict(before.tree)
    for path in sorted(set(paths)):
        _look_again(walker, found, path)
    if any(path not in before.tree for path in found.fresh):
        refuse_clashes(found)
    found.tree.update(found.fresh)
    return found


def _look_again(walker: Walker, found: Scan, path: str) -> None:
    if walker.ignore.hides(path, False):
        return
    at = os.path.join(found.root, path)
    try:
        status = os.lstat(at)
    except (FileNotFoundError, NotADirectoryError):
        _forget(found, path)
        return
    if stat.S_ISDIR(status.st_mode):
        if walker.ignore.hides(path, True):
            return
        _forget(found, path, but_itself=True)
        walker.see(path, at, status, signature(status))
        walker.walk(path, False)
        found.gone -= found.signatures.keys()
    else:
        if found.tree.get(path) == DIRECTORY:
            _forget(found, path)
        found.problems.pop(path, None)
        walker.see(path, at, status, signature(status))
        _see_parents(walker, found, path)


def _see_parents(walker: Walker, found: Scan, path: str) -> None:
    """A file may be told of before the directory that it lies in."""
    folder = path.rpartition("/")[0]
    if folder and folder not in found.tree and folder not in found.fresh:
        _look_again(walker, found, folder)


def _forget(found: Scan, path: str, but_itself: bool = False) -> None:
    here = [path] if path in found.tree else []
    if not here or found.tree[path].kind is Kind.DIRECTORY:
        here = [p for p in found.tree if below(p, path)]
    for each in here:
        if each == path and but_itself:
            continue
        found.tree.pop(each, None)
        found.signatures.pop(each, None)
        found.problems.pop(each, None)
        found.fresh.pop(each, None)
        found.gone.add(each)
