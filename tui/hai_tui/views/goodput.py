"""Sentences about the goodput of a task: how much of its time on nodes was useful work."""

from __future__ import annotations

from collections.abc import Iterator

from hai.v1.task_pb2 import Goodput, Run
from hai_tui.formatting.values import since, span

_BASES = {
    "task": "it loses work every {span}",
    "group": "tasks of its group and size lose work every {span}",
    "default": "nothing is known of interruptions yet: one in {span} is assumed",
}


def goodput_sentences(goodput: Goodput, now: float) -> Iterator[str]:
    """Yield the sentences; none for a task that has held no nodes."""
    if not goodput.HasField("share"):
        return
    yield _share_sentence(goodput)
    if goodput.checkpoints:
        yield _checkpoint_sentence(goodput, now)
    if goodput.HasField("advised_interval_seconds"):
        yield _advice_sentence(goodput)
    if goodput.note:
        yield f"note: {goodput.note}"


def checkpoint_times_sentence(run: Run) -> str:
    """Return how long the checkpoints of a run took; empty if that is unknown."""
    parts = []
    if run.HasField("load_seconds"):
        parts.append(f"its checkpoint was loaded in {_duration(run.load_seconds)}")
    if run.HasField("save_seconds"):
        parts.append(f"the last save took {_duration(run.save_seconds)}")
    if run.HasField("write_seconds"):
        parts.append(f"the last write from memory to disk took {_duration(run.write_seconds)}")
    return f"run {run.number}: {', '.join(parts)}" if parts else ""


def _share_sentence(goodput: Goodput) -> str:
    paused = goodput.saving_seconds + goodput.loading_seconds
    parts = [f"starting and leaving took {_duration(goodput.overhead_seconds - paused)}"]
    if goodput.saving_seconds:
        parts.append(f"saving {_duration(goodput.saving_seconds)}")
    if goodput.loading_seconds:
        parts.append(f"loading {_duration(goodput.loading_seconds)}")
    if goodput.interruptions or goodput.lost_seconds >= 1:
        parts.append(f"{span(goodput.lost_seconds)} of work were lost")
    return f"goodput {goodput.share:.1%} of {_duration(goodput.held_seconds)}: {', '.join(parts)}"


def _checkpoint_sentence(goodput: Goodput, now: float) -> str:
    ago = since(goodput.checkpoint_time, now)
    cost = f", {_duration(goodput.checkpoint_seconds)} each" if goodput.checkpoint_seconds else ""
    every = (
        f", one in {_duration(goodput.interval_seconds)} of work"
        if goodput.interval_seconds
        else ""
    )
    return f"checkpoints: {goodput.checkpoints}, the last one {ago} ago{cost}{every}"


def _advice_sentence(goodput: Goodput) -> str:
    basis = _BASES[goodput.basis].format(span=span(goodput.between_interruptions_seconds))
    return f"advised: a checkpoint every {_duration(goodput.advised_interval_seconds)} ({basis})"


def _duration(seconds: float) -> str:
    return f"{seconds:.2g}s" if seconds < 10 else span(seconds)
