"""What must be done after a transition. Every instruction may be repeated."""

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
    by_owner: bool = False  # its owner asks: no preemption notice is needed


@dataclass(frozen=True, slots=True)
class EndPrograms:
    """End the programs: SIGTERM, grace, SIGKILL."""

    run: int
    ranks: tuple[int, ...]
    grace: float
    reason: str


@dataclass(frozen=True, slots=True)
class SendWholeLifeState:
    """Another rank has set the whole-life state."""

    run: int
    ranks: tuple[int, ...]
    value: int


@dataclass(frozen=True, slots=True)
class KillRanks:
    """Agents did not end in time, or never attached: end them by force."""

    run: int
    ranks: tuple[int, ...]


Instruction = (
    Launch | StartPrograms | SuspendPrograms | EndPrograms | SendWholeLifeState | KillRanks
)
