"""Measurements of how a task uses the time on its nodes, summed or averaged over its runs."""

from __future__ import annotations

from dataclasses import dataclass

DAY = 86_400.0
PROTECTED_AFTER = (
    2  # suspensions in a row of runs that saved nothing; then the next run is protected
)
_NEWEST = 0.25  # weight of the newest measurement; after four more, two thirds of the mean are new


@dataclass(frozen=True, slots=True)
class Suspension:
    """A suspension of a run by the scheduler, for another task."""

    at: float
    for_task: int
    higher: bool = False  # whether the other task had a higher level


@dataclass(frozen=True, slots=True)
class Progress:
    """The measurements of a task. Sums are over ended runs; None means that a value was never measured."""

    saved_at: float | None = None  # last checkpoint of any run
    saves: int = 0
    save_seconds: float | None = None  # mean time of a checkpoint
    start_seconds: float | None = None  # mean time from placement until all programs have started
    suspend_seconds: float | None = (
        None  # mean time from a suspend request until every rank is gone
    )
    yields: bool = False  # whether the program saved and yielded at the last suspend request
    held_seconds: float = 0.0
    overhead_seconds: float = 0.0  # part of `held_seconds` for starting and suspending
    lost_seconds: float = 0.0  # part of `held_seconds` for work that no checkpoint has saved
    losses: int = 0  # interruptions that lost the work since the last checkpoint
    # end of the last run or of the last dependency; None if there was none
    queued_at: float | None = None
    suspensions: tuple[Suspension, ...] = ()  # of the last day, oldest first
    saved_step: int | None = None  # step of the last checkpoint; None if unknown
    # longest time of the last saves, in seconds; it falls slowly after shorter saves
    longest_save: float | None = None
    # suspensions in a row by the scheduler, of runs that had saved no checkpoint and did not yield
    unsaved_suspensions: int = 0
    saving_seconds: float = (
        0.0  # of all runs, for which work stood still while checkpoints were saved
    )
    loading_seconds: float = 0.0  # of all runs, in which programs loaded checkpoints
    load_seconds: float | None = None  # mean time in which a run loaded a checkpoint

    @property
    def restart_seconds(self) -> float | None:
        """Seconds of a suspend, a restart and the load of a checkpoint; None until the first two were measured."""
        if self.start_seconds is None or self.suspend_seconds is None:
            return None
        return self.start_seconds + self.suspend_seconds + (self.load_seconds or 0.0)


def add_suspension(earlier: tuple[Suspension, ...], new: Suspension) -> tuple[Suspension, ...]:
    """Return the suspensions of the last day, including a new one."""
    return (*(s for s in earlier if new.at - s.at < DAY), new)


def update_mean(earlier: float | None, measured: float, count: int = 1) -> float:
    """Return an exponentially weighted mean after `count` more measurements with this value or mean."""
    if earlier is None:
        return measured
    return measured + (earlier - measured) * (1 - _NEWEST) ** count


def update_longest(earlier: float | None, measured: float) -> float:
    """Return the longest of the last measurements. An earlier one counts less with each that is shorter."""
    return max(measured, update_mean(earlier, measured))
