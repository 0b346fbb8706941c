"""What is known of agents that the server does not hear: rules of lifecycle.TABLE.

Silence alone ends nothing. The rank's program may run on, and the agent may come back; until then the silence is shown.
"""

from __future__ import annotations

from hai_backend.domain.formatting import utc
from hai_backend.domain.task import Run, Task
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.limits import Limits
from hai_backend.lifecycle.transition import Line, Move, may_run, with_rank, with_run


def silent(task: Task, run: Run, event: ev.AgentSilent, now: float, limits: Limits) -> Move:
    """The agent of a rank whose program may run was not heard for `Timing.silent_after`."""
    rank = run.ranks[event.rank]
    if not may_run(rank) or rank.silent_since is not None:
        return Move(task)
    reason = f"agent of rank {rank.index} on {rank.node} is silent since {utc(event.since)}"
    line = Line("AgentSilent", reason, rank=rank.index)
    return Move(with_run(task, with_rank(run, rank.index, silent_since=event.since)), (), (line,))


def heard(task: Task, run: Run, event: ev.AgentHeard, now: float, limits: Limits) -> Move:
    """An agent that was silent is heard again."""
    rank = run.ranks[event.rank]
    if rank.silent_since is None:
        return Move(task)
    seconds = max(0.0, now - rank.silent_since)
    reason = f"agent of rank {rank.index} on {rank.node} is heard again after {seconds:.0f} s"
    line = Line("AgentHeard", reason, rank=rank.index)
    return Move(with_run(task, with_rank(run, rank.index, silent_since=None)), (), (line,))
