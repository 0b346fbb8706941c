"""What a task has made of the time that it held nodes: measured facts, summed or smoothed over its runs."""

from __future__ import annotations

from dataclasses import dataclass

DAY = 86_400.0
# weight of the newest measurement: four runs or checkpoints later two thirds are new
_NEWEST = 0.25


@dataclass(frozen=True, slots=True)
class Suspension:
    """The scheduler has asked a run to leave for another task."""

    at: float
    for_task: int
    higher: bool = False  # the other task was of a higher level


@dataclass(frozen=True, slots=True)
class Progress:
    """Sums are over ended runs. What is None was never measured; smoothed values follow `smoothed`."""

    saved_at: float | None = None  # last checkpoint, of whichever run
    saves: int = 0
    save_seconds: float | None = None  # of one checkpoint, smoothed
    start_seconds: float | None = None  # run placed -> all programs started, smoothed
    suspend_seconds: float | None = None  # asked to leave -> every rank gone, smoothed
    yields: bool = False  # the last time that it was asked to leave, it saved and yielded
    held_seconds: float = 0.0
    overhead_seconds: float = 0.0  # of those: starting and leaving
    lost_seconds: float = 0.0  # of those: work that no checkpoint kept
    losses: int = 0  # interruptions that kept nothing since the last checkpoint
    # end of the last run, or of the last task that went first; None: there was none
    queued_at: float | None = None
    suspensions: tuple[Suspension, ...] = ()  # of the last day, oldest first

    @property
    def restart_seconds(self) -> float | None:
        """What suspending and starting again costs; None until both have been measured."""
        if self.start_seconds is None or self.suspend_seconds is None:
            return None
        return self.start_seconds + self.suspend_seconds


def suspended(known: tuple[Suspension, ...], new: Suspension) -> tuple[Suspension, ...]:
    """The suspensions of the day that ends with a new one."""
    return (*(s for s in known if new.at - s.at < DAY), new)


def smoothed(known: float | None, measured: float, count: int = 1) -> float:
    """An exponentially weighted mean after `count` more measurements of this (mean) value."""
    if known is None:
        return measured
    return measured + (known - measured) * (1 - _NEWEST) ** count
