"""Makes paths as they were in an older revision: a new revision, of contents that are here already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hai_backend.domain.errors import Invalid, Violation
from hai_backend.domain.workspace import Entry, EntryKind, Revision, is_own
from hai_backend.workspaces.files import Files
from hai_backend.workspaces.push import apply, staging
from hai_backend.workspaces.push.commit_preparation import carry_out
from hai_backend.workspaces.push.staging import Author


def restore(files: Files, number: int, paths: Sequence[str], author: Author) -> Revision:
    """Everything below `paths`, or all of it; the newest revision when nothing differs. Raises Invalid or Conflict."""
    apply.apply(files)
    newest = files.index.newest()
    wanted = frozenset(path.strip("/") for path in paths)
    staging.stage(files.index, _changes(files, number, newest.number, wanted))
    if wanted and not _any_is_known(files, number, newest.number, wanted):
        told = ", ".join(sorted(wanted)[:5])
        raise Invalid((Violation("paths", f"revision {number} has none of {told}"),))
    if not staging.settle(files.index):
        return newest
    return carry_out(files, author)


def _changes(
    files: Files, number: int, newest: int, wanted: frozenset[str]
) -> Iterator[list[Entry]]:
    """What was added since goes, what was there comes back."""
    for page in files.index.changes(number, newest):
        yield [Entry(e.path, EntryKind.NONE) for e in page if _is_wanted(e.path, wanted)]
    for page in files.index.tree(number):
        yield [entry for entry in page if _is_wanted(entry.path, wanted)]


def _is_wanted(path: str, wanted: frozenset[str]) -> bool:
    if is_own(path):
        return False
    if not wanted or path in wanted:
        return True
    above = path.rpartition("/")[0]
    while above:
        if above in wanted:
            return True
        above = above.rpartition("/")[0]
    return False


def _any_is_known(files: Files, number: int, newest: int, wanted: frozenset[str]) -> bool:
    return any(
        files.index.entry(path, revision) is not None
        for path in wanted
        for revision in (number, newest)
    )
