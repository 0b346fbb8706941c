"""Rules for the start of a run and for reports of its programs."""

from __future__ import annotations

from dataclasses import replace

from hai_backend.domain.task import RankState, Run, RunState, StopCode, Task
from hai_backend.lifecycle import accounting
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.instructions import SendWholeLifeState, StartPrograms
from hai_backend.lifecycle.limits import (
    Limits,
    save_ends_at,
    save_seconds,
    stall_seconds,
    time_limit_at,
)
from hai_backend.lifecycle.rules.transition import (
    Line,
    Transition,
    existing_ranks,
    is_live,
    with_line,
    with_rank,
    with_run,
)

_MAX_BYTES = (
    1 << 62
)  # of the state of one rank; a larger report is wrong and does not fit into the store


def on_launched(
    task: Task, run: Run, event: ev.RunLaunched, now: float, limits: Limits
) -> Transition:
    """Store that the launch of the ranks has begun."""
    ranks = tuple(
        replace(r, state=RankState.BUILDING) if r.state is RankState.CREATED else r
        for r in run.ranks
    )
    return Transition(with_run(task, run, state=RunState.BUILDING, ranks=ranks))


def on_attached(
    task: Task, run: Run, event: ev.RankAttached, now: float, limits: Limits
) -> Transition:
    """Store that a rank has attached. When the last rank has attached, start the programs of all ranks."""
    run = with_rank(
        run,
        event.rank,
        state=RankState.RUNNING,
        address=event.address,
        free_port=event.free_port,
    )
    if any(r.state is not RankState.RUNNING for r in run.ranks):
        return Transition(with_run(task, run))
    return with_line(Line("RankAttached", "", "agent", event.rank), _start(task, run, now))


def _start(task: Task, run: Run, now: float) -> Transition:
    run = replace(run, state=RunState.RUNNING, started_at=now)
    run = replace(run, deadline=time_limit_at(task, run, now))
    task = replace(task, run=run, launch_failure_count=0)
    line = Line("RunStarted", "all ranks have attached")
    return Transition(task, (StartPrograms(run.number, existing_ranks(run)),), (line,))


def on_program_started(
    task: Task, run: Run, event: ev.ProgramStarted, now: float, limits: Limits
) -> Transition:
    """Store that the program of a rank has started, with its environment."""
    if run.ranks[event.rank].started_at is not None:
        return Transition(task)
    lines = environment_lines(task, run, event)
    if not any(rank.started_at is not None for rank in run.ranks):
        run = replace(run, environment_lock=event.environment_lock)
    run = with_rank(run, event.rank, started_at=now)
    task = replace(task, run=run, started_at=task.started_at or now)
    return Transition(accounting.record_start(task, run, now), (), lines)


def on_acknowledged(
    task: Task, run: Run, event: ev.SuspendAcknowledged, now: float, limits: Limits
) -> Transition:
    """Store that the program has noticed the request to leave. From now on it has time to save."""
    if run.acknowledged_at is not None:
        return Transition(task)
    # A program that saves in a thread may acknowledge in the middle of a save.
    seconds = stall_seconds(task, limits) if run.state_bytes else save_seconds(task, limits)
    return Transition(with_run(task, run, acknowledged_at=now, deadline=now + seconds))


def on_save_progressed(
    task: Task, run: Run, event: ev.SaveProgressed, now: float, limits: Limits
) -> Transition:
    """Store how much is saved. If that has changed, extend the time to save.

    A program may be saving already when it is asked to leave, so this applies before the acknowledgement, too. A
    repeated report changes nothing: a reconnected agent sends its last report again.
    """
    total = min(max(0, event.total_bytes), _MAX_BYTES)
    saved = min(max(0, event.saved_bytes), total)
    rank = run.ranks[event.rank]
    if not is_live(rank) or (saved, total) == (rank.saved_bytes, rank.state_bytes):
        return Transition(task)
    run = with_rank(run, event.rank, saved_bytes=saved, state_bytes=total)
    if total and run.deadline is not None and not run.stop_code & StopCode.FAILED:
        extended = min(now + stall_seconds(task, limits), save_ends_at(task, run, limits))
        run = replace(run, deadline=max(run.deadline, extended))
    return Transition(replace(task, run=run), silent=True)


def on_checkpoint_lost(
    task: Task, run: Run, event: ev.CheckpointLost, now: float, limits: Limits
) -> Transition:
    """Tell the owner which checkpoint was lost with the memory of a node."""
    node = f"node {event.node}" if event.node else "its node"
    goes_on = (
        "from the beginning" if event.resumed_step is None else f"from step {event.resumed_step}"
    )
    reason = (
        f"checkpoint of step {event.step} was lost with the memory of {node}; continues {goes_on}"
    )
    return Transition(task, (), (Line("CheckpointLost", reason, "agent", event.rank),), record=True)


def on_checkpoint_loaded(
    task: Task, run: Run, event: ev.CheckpointLoaded, now: float, limits: Limits
) -> Transition:
    """Store how long the program took to load its state, at most since its start. The longest load of a run counts."""
    started_at, earlier = run.ranks[event.rank].started_at, run.load_seconds or 0.0
    seconds = min(event.seconds, now - (now if started_at is None else started_at))
    if not seconds > earlier:  # also if it is no number
        return Transition(task)
    progress = task.progress
    progress = replace(progress, loading_seconds=progress.loading_seconds + seconds - earlier)
    task = replace(task, progress=progress)
    return Transition(with_run(task, run, load_seconds=seconds), silent=True)


def on_whole_life_state_changed(
    task: Task, run: Run, event: ev.WholeLifeStateChanged, now: float, limits: Limits
) -> Transition:
    """Store the whole-life state, and send it to the other ranks."""
    if task.whole_life_state == event.value:
        return Transition(task)
    others = tuple(i for i in existing_ranks(run) if i != event.rank)
    send = (SendWholeLifeState(run.number, others, event.value),) if others else ()
    line = Line("WholeLifeStateChanged", f"set to {event.value}", "agent", event.rank)
    return Transition(replace(task, whole_life_state=event.value), send, (line,))


_HASH_CHARS = 12  # enough to tell two hashes apart


def environment_lines(task: Task, run: Run, event: ev.ProgramStarted) -> tuple[Line, ...]:
    """Return timeline lines about the environment of a rank that has started.

    For the first rank, `run.environment_lock` is still the lock of the previous run.
    """
    changes = _environment_changes(task, run, event)
    return (Line("ProgramStarted", "", "agent", event.rank), *changes) if changes else ()


def _environment_changes(task: Task, run: Run, event: ev.ProgramStarted) -> tuple[Line, ...]:
    name, now, before = task.spec.options.py_venv, event.environment_lock, run.environment_lock
    if not name:
        return ()
    if not now:
        why = f"rank {event.rank} runs without environment {name}; its log says why"
        return (Line("EnvironmentMissing", why, "agent", event.rank),)
    if now == before:
        return ()
    text = f"environment {name} has lock {now[:_HASH_CHARS]}"
    if any(rank.started_at is not None for rank in run.ranks):
        why = f"{text} for rank {event.rank}, but {before[:_HASH_CHARS]} for others: it was changed"
        return (Line("EnvironmentDiffers", why, "agent", event.rank),)
    if before:
        why = f"{text}; in the run before it had {before[:_HASH_CHARS]}: its packages were changed"
        return (Line("EnvironmentChanged", why, "agent", event.rank),)
    return (Line("EnvironmentUsed", text, "agent", event.rank),)
