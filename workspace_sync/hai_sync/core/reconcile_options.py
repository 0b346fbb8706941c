"""The options and the result of a reconciliation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hai_sync.core.diff import Change
from hai_sync.core.entry import Entry, Tree, is_within


class Mode(StrEnum):
    """Which side may be written: PUSH writes the remote one, PULL the local one, SYNC both."""

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

    mirror: whether paths are removed that only the written side has and the other side never had.
    overwrite: whether changes are discarded that only the written side has made.
    removals: whether paths that the other side has removed are removed from the written side.
    """

    mode: Mode = Mode.SYNC
    policy: Policy = Policy.REFUSE
    mirror: bool = False
    overwrite: bool = False
    removals: bool = True
    per_path: tuple[tuple[str, Policy], ...] = ()  # policies of single paths or directories

    def policy_of(self, path: str) -> Policy:
        """Return the policy of the innermost path in `per_path` that covers this one."""
        matching = [pair for pair in self.per_path if is_within(path, pair[0])]
        return max(matching, key=lambda pair: len(pair[0]))[1] if matching else self.policy


@dataclass(frozen=True, slots=True)
class Conflict:
    """A path that both sides have changed differently. The trees have this path and all paths below it."""

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
    # paths that changed on the side that this mode does not read
    other_side_only: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    # local paths of the contents, by conflict copy
    copies: Mapping[str, str] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """Whether there are neither changes nor conflicts."""
        return not (self.to_local or self.to_remote or self.conflicts)
