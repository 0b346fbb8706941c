"""What a caller wants of a sync, and what it is told about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from hai_sync.core.diff import Change
from hai_sync.core.entry import Tree, below
from hai_sync.core.rules import Outcome, Rules
from hai_sync.errors import CHANGING
from hai_sync.scan import Filter


class Refused(StrEnum):
    """Why a plan was not carried out, or not as a whole."""

    NO = ""
    CONFLICTS = "conflicts"
    REMOVALS = "many removals"
    SKIPPED = "skipped links"


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """One sync."""

    rules: Rules = field(default_factory=Rules)
    filter: Filter = field(default_factory=Filter)
    dry_run: bool = False
    partial: bool = False  # carry out what is not in conflict
    many_removals: bool = False
    strict: bool = False  # refuse to leave out links that lead out of the workspace
    verify: bool = False  # look into every file
    by_size: bool = False  # do not look into files of the same size
    break_lease: bool = False
    look: bool = True  # at what tasks have written on the server; a push never does
    resident: bool = False  # more syncs of this session follow: have both sides at hand
    purpose: str = "push"
    jobs: int = 0  # files that are read at the same time; 0: as many as seem good
    paths: tuple[str, ...] = ()  # only these and what lies below; empty: all


class Listener(Protocol):
    """Hears how a sync goes on."""

    def sends(self, changes: Sequence[Change]) -> None:
        """All that is about to be sent."""

    def stage(self, name: str, files: int, size: int) -> None:
        """A part of the work begins, so large."""

    def progress(self, files: int, size: int) -> None:
        """So much of it is done since the last call."""


class Silent:
    """Hears nothing."""

    def sends(self, changes: Sequence[Change]) -> None:
        """Nothing."""

    def stage(self, name: str, files: int, size: int) -> None:
        """Nothing."""

    def progress(self, files: int, size: int) -> None:
        """Nothing."""


@dataclass(slots=True, repr=False)  # asyncio.run would write it out, which takes longer than a scan
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
    skipped: dict[str, str] = field(default_factory=dict)  # links that lead out: nobody minds
    passed_over: dict[str, str] = field(default_factory=dict)  # on the server; no push minds
    notes: dict[str, str] = field(default_factory=dict)
    wire_bytes: int = 0
    local: Tree = field(default_factory=dict)
    remote: Tree = field(default_factory=dict)
    done: int = 0

    @property
    def unsettled(self) -> set[str]:
        """Files here that changed while they were read: to be read again."""
        return {p for p, why in self.problems.items() if why == CHANGING and p in self.local}

    @property
    def in_sync(self) -> bool:
        """True when everything that was wanted is done, and nothing was left alone."""
        return self.settled() and not self.passed_over

    def settled(self, paths: Sequence[str] = ()) -> bool:
        """True when all is done at these paths (none: everywhere) that the other side could have."""
        left = (p for p in self.problems if not paths or any(_meets(p, each) for each in paths))
        return not (self.refused or self.outcome.conflicts or any(left))

    def as_dict(self) -> Mapping[str, object]:
        """For programs."""
        return {
            "revision": self.revision,
            "files": self.files,
            "bytes": self.bytes,
            "ignored": self.ignored,
            "uploaded": len(self.outcome.to_remote),
            "downloaded": len(self.outcome.to_local),
            "held": list(self.outcome.held),
            "conflicts": [conflict.path for conflict in self.outcome.conflicts],
            "problems": dict(self.problems),
            "skipped": dict(self.skipped),
            "passed_over": dict(self.passed_over),
            "refused": self.refused.value,
            "withheld": list(self.withheld),
            "wire_bytes": self.wire_bytes,
        }


def _meets(path: str, other: str) -> bool:
    return below(path, other) or below(other, path)


def sizes(changes: Sequence[object]) -> tuple[int, int]:
    """Files and bytes of what is to come."""
    new = [c.new for c in changes if c.new is not None]  # type: ignore[attr-defined]
    return len(changes), sum(entry.size for entry in new)
