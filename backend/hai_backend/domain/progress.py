"""How well a task uses the time on its nodes: measurements, summed or smoothed over its runs."""

from __future__ import annotations

from dataclasses import dataclass

DAY = 86_400.0
# weight of the newest measurement: four runs or checkpoints later two thirds are new
_NEWEST = 0.25


@dataclass(frozen=True, slots=True)
class Suspension:
    """The scheduler has suspended a run for another task."""

    at: float
    for_task: int
    higher: bool = False  # the other task was of a higher level


@dataclass(frozen=True, slots=True)
class Progress:
    """Sums are over ended runs. None: never measured."""

    saved_at: float | None = None  # last checkpoint, of whichever run
    saves: int = 0
    save_seconds: float | None = None  # of one checkpoint, smoothed
    start_seconds: float | None = None  # run placed -> all programs started, smoothed
    suspend_seconds: float | None = None  # suspend requested -> every rank terminated, smoothed
    yields: bool = False  # at the last suspend request, it saved and yielded
    held_seconds: float = 0.0
    overhead_seconds: float = 0.0  # of those: starting and suspending
    lost_seconds: float = 0.0  # of those: work that no checkpoint has saved
    losses: int = 0  # interruptions that lost the work since the last checkpoint
    # end of the last run, or of the last task that went first; None: there was none
    queued_at: float | None = None
    suspensions: tuple[Suspension, ...] = ()  # of the last day, oldest first

    @property
    def restart_seconds(self) -> float | None:
        """Cost of a suspend and a restart; None until both have been measured."""
        if self.start_seconds is None or self.suspend_seconds is None:
            return None
        return self.start_seconds + self.suspend_seconds


def add_suspension(earlier: tuple[Suspension, ...], new: Suspension) -> tuple[Suspension, ...]:
    """The suspensions of the last day, including a new one."""
    return (*(s for s in earlier if new.at - s.at < DAY), new)


def update_mean(earlier: float | None, measured: float, count: int = 1) -> float:
    """An exponentially weighted mean after `count` more measurements of this (mean) value."""
    if earlier is None:
        return measured
    return measured + (earlier - measured) * (1 - _NEWEST) ** count
