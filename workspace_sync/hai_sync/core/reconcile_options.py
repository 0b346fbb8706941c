"""Options and result of a reconciliation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hai_sync.core.diff import Change
from hai_sync.core.entry import Entry, Tree, below


class Mode(StrEnum):
    """Which side may be written: push the remote one, pull the local one, sync both."""

    PUSH = "push"
    PULL = "pull"
    SYNC = "sync"


class Policy(StrEnum):
    """Which side wins where both have changed."""

    REFUSE = "refuse"
    LOCAL = "local"
    REMOTE = "remote"
    NEWER = "newer"
    KEEP_BOTH = "keep-both"


@dataclass(frozen=True, slots=True)
class Rules:
    """Options of a reconciliation.

    mirror: removes paths that only the written side has, although the other side never had them.
    overwrite: discards changes that only the written side has made.
    removals: False keeps on the written side what the other side has removed.
    """

    mode: Mode = Mode.SYNC
    policy: Policy = Policy.REFUSE
    mirror: bool = False
    overwrite: bool = False
    removals: bool = True
    per_path: tuple[tuple[str, Policy], ...] = ()  # policies of single paths or directories

    def policy_of(self, path: str) -> Policy:
        """The policy of the innermost path of `per_path` that covers this one."""
        matching = [pair for pair in self.per_path if below(path, pair[0])]
        return max(matching, key=lambda pair: len(pair[0]))[1] if matching else self.policy


@dataclass(frozen=True, slots=True)
class Conflict:
    """A path that both sides have changed differently. The trees hold it and everything below."""

    path: str
    base: Entry | None
    local: Tree
    remote: Tree


@dataclass(frozen=True, slots=True)
class Outcome:
    """The changes that a sync needs, sorted by path."""

    to_local: tuple[Change, ...] = ()
    to_remote: tuple[Change, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    other_side_only: tuple[str, ...] = ()  # changed on the side that this mode does not read
    problems: tuple[str, ...] = ()
    copies: Mapping[str, str] = field(
        default_factory=dict
    )  # conflict copy: the local path of its content

    @property
    def idle(self) -> bool:
        """Whether there are neither changes nor conflicts."""
        return not (self.to_local or self.to_remote or self.conflicts)
