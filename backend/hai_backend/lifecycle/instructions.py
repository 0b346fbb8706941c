"""What must be done after a step. Imperative; every instruction may be repeated."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Launch:
    """Start the agents of these ranks."""

    run: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TellGo:
    """All ranks have attached: start the programs."""

    run: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TellSuspend:
    """Ask the programs to save and yield."""

    run: int
    ranks: tuple[int, ...]
    save_within: float
    wanted: bool = False  # by its owner: nobody need be warned


@dataclass(frozen=True, slots=True)
class TellEnd:
    """End the programs: SIGTERM, grace, SIGKILL."""

    run: int
    ranks: tuple[int, ...]
    grace: float
    reason: str


@dataclass(frozen=True, slots=True)
class TellState:
    """Another rank has set the whole-life state."""

    run: int
    ranks: tuple[int, ...]
    value: int


@dataclass(frozen=True, slots=True)
class KillRanks:
    """Agents did not end in time, or never attached: end them by force."""

    run: int
    ranks: tuple[int, ...]


Instruction = Launch | TellGo | TellSuspend | TellEnd | TellState | KillRanks
