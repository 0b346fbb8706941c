"""What a caller may ask of a reconciliation, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hai_sync.core.diff import Change
from hai_sync.core.entry import Entry, Tree, below


class Mode(StrEnum):
    """Who may be written."""

    PUSH = "push"
    PULL = "pull"
    SYNC = "sync"


class Policy(StrEnum):
    """What happens where both sides have changed."""

    REFUSE = "refuse"
    LOCAL = "local"
    REMOTE = "remote"
    NEWER = "newer"
    KEEP_BOTH = "keep-both"


@dataclass(frozen=True, slots=True)
class Rules:
    """How to decide.

    mirror: what only the written side has is removed there, although the other never had it.
    overwrite: what only the written side has changed gives way too.
    removals: False leaves on the written side what was removed on the other.
    """

    mode: Mode = Mode.SYNC
    policy: Policy = Policy.REFUSE
    mirror: bool = False
    overwrite: bool = False
    removals: bool = True
    per_path: tuple[tuple[str, Policy], ...] = ()  # a path or directory with a policy of its own

    def policy_of(self, path: str) -> Policy:
        """The policy of the innermost directory that has one."""
        mine = [pair for pair in self.per_path if below(path, pair[0])]
        return max(mine, key=lambda pair: len(pair[0]))[1] if mine else self.policy


@dataclass(frozen=True, slots=True)
class Conflict:
    """Both sides have changed a path, differently. The trees hold it and what lies below."""

    path: str
    base: Entry | None
    local: Tree
    remote: Tree


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is to be done, each by path."""

    to_local: tuple[Change, ...] = ()
    to_remote: tuple[Change, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    held: tuple[str, ...] = ()  # changed on the side that this mode does not read
    problems: tuple[str, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)  # conflict copy: whose content it is

    @property
    def idle(self) -> bool:
        """True when nothing is to be done and nobody to be asked."""
        return not (self.to_local or self.to_remote or self.conflicts)
