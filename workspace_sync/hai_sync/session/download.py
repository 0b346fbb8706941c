"""Files of the cluster into a directory, without a sync.

What is here and differs makes room only if that is forced, and is kept then as by a pull. Outside of the workspace
nothing is kept, so that only a file takes the place of a file there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from hai.client.errors import HaiError, UsageError
from hai_sync.core.diff import Change, only_mode
from hai_sync.core.entry import DIRECTORY, Entry, Kind, Tree, ancestors, parent
from hai_sync.file_fingerprint import Signature, signature
from hai_sync.hashing import hash_files
from hai_sync.remote.downloader import Download
from hai_sync.scan import Filter, Known, Scan, Walker
from hai_sync.transition.apply import Transition
from hai_sync.transition.directories import Directories
from hai_sync.transition.safe_replace import SafeReplace
from hai_sync.version_store import VersionStore
from hai_sync.workspace_dir import TEMPORARY, WorkspaceDir

_KEPT = {Kind.FILE, Kind.SYMLINK}
_LISTED = 10


@dataclass(slots=True)
class Landing:
    """Where files of the cluster come to lie: below `root`, which nothing leaves, in its directory `below`."""

    root: Path
    below: str
    hold: Path  # on the same file system, for what comes and goes
    kept: VersionStore
    keeps: bool  # for longer than this takes
    _seen: Mapping[str, Signature] = field(default_factory=dict)

    def path(self, path: str) -> str:
        """What a path of the cluster is called here."""
        return f"{self.below}/{path}" if self.below else path

    def look(self, chosen: Tree) -> list[Change]:
        """What must change here, after a look into files of equal size."""
        wanted = {self.path(path): entry for path, entry in chosen.items()}
        for path in list(wanted):
            wanted |= {above: DIRECTORY for above in ancestors(path) if above not in wanted}
        found = _look(self.root, wanted)
        self._seen, here = found.signatures, found.fresh
        return [Change(p, here.get(p), new) for p, new in wanted.items() if here.get(p) != new]

    def require_room(self, changes: Sequence[Change], force: bool) -> None:
        """Raises UsageError if something is in the way."""
        if stuck := [change.path for change in changes if self._stuck(change)]:
            raise UsageError(
                f"in the way here, and left alone: {_listed(stuck)}",
                hint="remove or rename it, or say --to another directory",
            )
        differing = [c.path for c in changes if c.old is not None and not only_mode(c)]
        if differing and not force:
            raise UsageError(
                f"here already, and not the same: {_listed(differing)}",
                hint="--force overwrites"
                + (", and keeps what was here for `restore --local`" if self.keeps else ""),
            )

    def _stuck(self, change: Change) -> bool:
        """True for what makes no room even if it is forced: of a directory or a pipe no version is kept."""
        old, new = change.old, change.new
        if old is None or new is None:
            return False
        return not {old.kind, new.kind} <= _KEPT or (not self.keeps and old.kind is not new.kind)

    def place(self, changes: Iterable[Change], contents: Download) -> None:
        """Make the changes, each whole or not at all. Raises HaiError."""
        versions = SafeReplace(self._seen, self.kept, self.hold, lambda step: None)
        work = Transition(Directories(self.root), versions, _copies(self.hold, contents))
        if problems := work.apply(changes).problems:
            path, why = next(iter(problems.items()))
            raise HaiError(
                f"{len(problems)} paths could not be put in their places, as {path}: {why}",
                reason="NOT_PLACED",
                hint="what has arrived is kept, do it again to go on",
            )
        for entry in contents.files.values():
            contents.place(entry.digest).unlink(missing_ok=True)


@contextmanager
def landing(place: WorkspaceDir, target: Path) -> Iterator[Landing]:
    """In a directory, which need not be there yet."""
    if target.is_relative_to(place.root):
        below = "/".join(target.relative_to(place.root).parts)
        yield Landing(
            place.root, below, place.own / TEMPORARY, VersionStore(place.state / "kept"), True
        )
        return
    target.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".hfai-", dir=target) as hold:
        yield Landing(target, "", Path(hold), VersionStore(Path(hold, "kept")), False)


def _look(root: Path, wanted: Mapping[str, Entry]) -> Scan:
    """Paths and nothing else, never through a link."""
    walker = Walker(root, Known(), Filter(files=False))
    found = walker.found
    for path in sorted(wanted):
        if parent(path) and found.fresh.get(parent(path)) != DIRECTORY:
            continue
        with suppress(FileNotFoundError):
            status = (root / path).lstat()
            walker.see(path, str(root / path), status, signature(status))
    sizes = {p: e.size for p, e in found.fresh.items() if e.kind is Kind.FILE}
    hash_files(found, [path for path, size in sizes.items() if wanted[path].size == size])
    return found


def _copies(hold: Path, contents: Download) -> Callable[[Change], str]:
    """One for each file: a content may have several places, on another file system than it came to."""
    numbers = count()

    def staged(change: Change) -> str:
        assert change.new is not None
        copy = hold / f"landing-{next(numbers)}"
        shutil.copyfile(contents.place(change.new.digest), copy)
        return str(copy)

    return staged


def _listed(paths: Sequence[str]) -> str:
    more = len(paths) - _LISTED
    return ", ".join(paths[:_LISTED]) + (f" and {more} more" if more > 0 else "")
