"""The instructions that follow from a transition. Each may be carried out more than once without harm."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Launch:
    """Start the agents of these ranks."""

    run: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StartPrograms:
    """All ranks have attached: start the programs."""

    run: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SuspendPrograms:
    """Ask the programs to save and yield."""

    run: int
    ranks: tuple[int, ...]
    save_within: float
    by_owner: bool = False  # the owner of the task asked, so no preemption notice is needed


@dataclass(frozen=True, slots=True)
class EndPrograms:
    """End the programs with SIGTERM and, after `grace` seconds, SIGKILL."""

    run: int
    ranks: tuple[int, ...]
    grace: float
    reason: str


@dataclass(frozen=True, slots=True)
class SendWholeLifeState:
    """Send the whole-life state that another rank has set."""

    run: int
    ranks: tuple[int, ...]
    value: int


@dataclass(frozen=True, slots=True)
class KillRanks:
    """End agents by force that did not end in time or never attached."""

    run: int
    ranks: tuple[int, ...]


Instruction = (
    Launch | StartPrograms | SuspendPrograms | EndPrograms | SendWholeLifeState | KillRanks
)
