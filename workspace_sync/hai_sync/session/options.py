"""Options, progress listener and report of a sync."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from hai_sync.core.diff import Change
from hai_sync.core.entry import Tree, below
from hai_sync.core.reconcile_options import Outcome, Rules
from hai_sync.errors import CHANGES_WHILE_READ
from hai_sync.scan import Filter


class Refused(StrEnum):
    """Why a plan was not executed, or only in part."""

    NO = ""
    CONFLICTS = "conflicts"
    REMOVALS = "many removals"
    SKIPPED = "skipped links"


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """Options of one sync."""

    rules: Rules = field(default_factory=Rules)
    filter: Filter = field(default_factory=Filter)
    dry_run: bool = False
    partial: bool = False  # sync the paths that are not in conflict
    many_removals: bool = False
    strict: bool = False  # refuse to skip links that lead out of the workspace
    verify: bool = False  # read every file
    by_size: bool = False  # files of equal size count as equal
    break_lease: bool = False
    scan_remote: bool = True  # let the server scan what tasks have written; a push never does
    keep_in_memory: bool = False  # for a daemon: keep both trees for the next sync
    purpose: str = "push"
    jobs: int = 0  # files that are read at the same time; 0: a default
    paths: tuple[str, ...] = ()  # only these and what lies below; empty: all


class Listener(Protocol):
    """Receives the progress of a sync."""

    def note_changes(self, changes: Sequence[Change]) -> None:
        """Called with the changes that are about to be sent."""

    def stage(self, name: str, files: int, size: int) -> None:
        """A stage begins, with this many files and bytes."""

    def progress(self, files: int, size: int) -> None:
        """Files and bytes of the stage that are done since the last call."""


class NullListener:
    """Ignores all progress."""

    def note_changes(self, changes: Sequence[Change]) -> None:
        """Nothing."""

    def stage(self, name: str, files: int, size: int) -> None:
        """Nothing."""

    def progress(self, files: int, size: int) -> None:
        """Nothing."""


@dataclass(slots=True, repr=False)  # asyncio.run would format it, which takes longer than a scan
class Report:
    """What a sync found and did."""

    outcome: Outcome = field(default_factory=Outcome)
    refused: Refused = Refused.NO
    withheld: tuple[str, ...] = ()  # files whose removal was refused
    revision: int = 0
    files: int = 0
    bytes: int = 0
    ignored: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)  # links that lead out: not an error
    passed_over: dict[str, str] = field(
        default_factory=dict
    )  # paths on the server that cannot be synced
    notes: dict[str, str] = field(default_factory=dict)
    wire_bytes: int = 0
    local: Tree = field(default_factory=dict)
    remote: Tree = field(default_factory=dict)
    done: int = 0

    @property
    def unstable_files(self) -> set[str]:
        """Local files that changed while they were read, and must be read again."""
        return {
            p for p, why in self.problems.items() if why == CHANGES_WHILE_READ and p in self.local
        }

    @property
    def in_sync(self) -> bool:
        """Whether everything was synced, without problems on either side."""
        return self.is_settled() and not self.passed_over

    def is_settled(self, paths: Sequence[str] = ()) -> bool:
        """Whether these paths (none: all) are synced, except for paths that the server passed over."""
        unresolved = (
            p for p in self.problems if not paths or any(_overlap(p, each) for each in paths)
        )
        return not (self.refused or self.outcome.conflicts or any(unresolved))

    def as_dict(self) -> Mapping[str, object]:
        """For programs."""
        return {
            "revision": self.revision,
            "files": self.files,
            "bytes": self.bytes,
            "ignored": self.ignored,
            "uploaded": len(self.outcome.to_remote),
            "downloaded": len(self.outcome.to_local),
            "held": list(self.outcome.other_side_only),
            "conflicts": [conflict.path for conflict in self.outcome.conflicts],
            "problems": dict(self.problems),
            "skipped": dict(self.skipped),
            "passed_over": dict(self.passed_over),
            "refused": self.refused.value,
            "withheld": list(self.withheld),
            "wire_bytes": self.wire_bytes,
        }


def _overlap(path: str, other: str) -> bool:
    return below(path, other) or below(other, path)


def sizes(changes: Sequence[object]) -> tuple[int, int]:
    """Files and bytes of changes."""
    new = [c.new for c in changes if c.new is not None]  # type: ignore[attr-defined]
    return len(changes), sum(entry.size for entry in new)
