"""What the time of a task was worth, as a message."""

from __future__ import annotations

from hai.v1 import task_pb2 as pb
from hai_backend.api.request.convert_time import timestamp
from hai_backend.lifecycle.goodput import Goodput


def goodput_to_proto(goodput: Goodput) -> pb.Goodput:
    """All of it."""
    return pb.Goodput(
        share=goodput.share,
        held_seconds=goodput.held_seconds,
        overhead_seconds=goodput.overhead_seconds,
        lost_seconds=goodput.lost_seconds,
        interruptions=goodput.interruptions,
        checkpoints=goodput.checkpoints,
        checkpoint_time=timestamp(goodput.saved_at),
        checkpoint_seconds=goodput.checkpoint_seconds,
        interval_seconds=goodput.interval_seconds,
        advised_interval_seconds=goodput.advised_seconds,
        between_interruptions_seconds=goodput.between_seconds,
        basis=goodput.basis,
        yields=goodput.yields,
        restart_seconds=goodput.restart_seconds,
        note=goodput.note,
    )
