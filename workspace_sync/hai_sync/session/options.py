"""The options, the progress listener and the report of a sync."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from hai_sync.core.diff import Change
from hai_sync.core.entry import Tree, is_within
from hai_sync.core.reconcile_options import Outcome, Rules
from hai_sync.errors import CHANGES_WHILE_READ
from hai_sync.scan import Filter


class Refused(StrEnum):
    """The reason why a plan was not executed, or only in part."""

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
    partial: bool = False  # whether to sync the paths that are not in conflict
    many_removals: bool = False
    strict: bool = False  # whether to refuse plans that skip outward links
    verify: bool = False  # whether to read files with unchanged fingerprints too
    by_size: bool = False  # whether files of equal size count as equal
    break_lease: bool = False
    scan_remote: bool = True  # whether the server scans what tasks have written; not for a push
    keep_in_memory: bool = False  # whether to keep both trees for the next sync, as a daemon does
    purpose: str = "push"
    jobs: int = 0  # number of files that are read at the same time; 0 means the default
    paths: tuple[str, ...] = ()  # sync only these paths and paths below them; empty means all


class Listener(Protocol):
    """Receives the progress of a sync."""

    def note_changes(self, changes: Sequence[Change]) -> None:
        """Receive the changes that are about to be sent."""

    def stage(self, name: str, files: int, size: int) -> None:
        """Begin a stage with this many files and bytes."""

    def progress(self, files: int, size: int) -> None:
        """Add files and bytes of the stage that were completed since the last call."""


class NullListener:
    """Ignores all progress."""

    def note_changes(self, changes: Sequence[Change]) -> None:
        """Do nothing."""

    def stage(self, name: str, files: int, size: int) -> None:
        """Do nothing."""

    def progress(self, files: int, size: int) -> None:
        """Do nothing."""


# no repr: asyncio.run would format it, which takes longer than a scan
@dataclass(slots=True, repr=False)
class Report:
    """What a sync found and did."""

    outcome: Outcome = field(default_factory=Outcome)
    refused: Refused = Refused.NO
    withheld: tuple[str, ...] = ()  # files that were not removed
    revision: int = 0
    files: int = 0
    bytes: int = 0
    ignored: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    # outward links that are not synced, which is not an error
    skipped: dict[str, str] = field(default_factory=dict)
    # paths on the server that cannot be synced
    passed_over: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    wire_bytes: int = 0
    local: Tree = field(default_factory=dict)
    remote: Tree = field(default_factory=dict)
    done: int = 0

    @property
    def unstable_files(self) -> set[str]:
        """Local files that changed while they were read, and must be read again."""
        return {
            p
            for p, reason in self.problems.items()
            if reason == CHANGES_WHILE_READ and p in self.local
        }

    @property
    def in_sync(self) -> bool:
        """Whether everything was synced, without problems on either side."""
        return self.is_settled() and not self.passed_over

    def is_settled(self, paths: Sequence[str] = ()) -> bool:
        """Return whether these paths (by default all) are synced, except for paths that the server passed over."""
        unresolved = (
            p for p in self.problems if not paths or any(_overlap(p, each) for each in paths)
        )
        return not (self.refused or self.outcome.conflicts or any(unresolved))

    def as_dict(self) -> Mapping[str, object]:
        """Return the report as a JSON object."""
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
    return is_within(path, other) or is_within(other, path)


def count_files_and_bytes(changes: Sequence[object]) -> tuple[int, int]:
    """Return the number of changes and the bytes of their new entries."""
    new = [c.new for c in changes if c.new is not None]  # type: ignore[attr-defined]
    return len(changes), sum(entry.size for entry in new)
