"""`hai status` describes the goodput of a task. The sentences depend only on the message."""

from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from hai.v1.task_pb2 import Goodput, Run
from hai_tui.views.goodput import checkpoint_times_sentence, goodput_sentences

KNOWN = Goodput(
    share=0.5,
    held_seconds=100,
    overhead_seconds=10,
    lost_seconds=40,
    interruptions=1,
    checkpoints=3,
    checkpoint_time=Timestamp(seconds=940),
    checkpoint_seconds=0.0123,
    interval_seconds=30,
    advised_interval_seconds=1,
    between_interruptions_seconds=90,
    basis="task",
)
SHARE = "goodput 50.0% of 1m40s: starting and leaving took 10s"
ADVICE = "advised: a checkpoint every 1s"


def changed(**fields: object) -> Goodput:
    made = Goodput()
    made.CopyFrom(KNOWN)
    for name, value in fields.items():
        made.ClearField(name) if value is None else setattr(made, name, value)  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize(
    ("goodput", "line", "says"),
    [
        pytest.param(KNOWN, 0, f"{SHARE}, 40s of work were lost", id="share"),
        pytest.param(changed(held_seconds=0.66, lost_seconds=0, interruptions=0), 0,
                     "goodput 50.0% of 0.66s: starting and leaving took 10s", id="less than a second"),
        pytest.param(changed(overhead_seconds=16, saving_seconds=4, loading_seconds=2), 0,
                     f"{SHARE}, saving 4s, loading 2s, 40s of work were lost", id="saving and loading"),
        pytest.param(KNOWN, 1, "checkpoints: 3, the last one 1m ago, 0.012s each, one in 30s of work", id="saves"),
        pytest.param(KNOWN, 2, f"{ADVICE} (it loses work every 1m30s)", id="its own losses"),
        pytest.param(changed(basis="group"), 2,
                     f"{ADVICE} (tasks of its group and size lose work every 1m30s)", id="its group's losses"),
        pytest.param(changed(basis="default"), 2,
                     f"{ADVICE} (nothing is known of interruptions yet: one in 1m30s is assumed)", id="no losses"),
        pytest.param(changed(note="call us"), 3, "note: call us", id="note"),
        pytest.param(changed(lost_seconds=0.0, interruptions=0), 0, SHARE, id="nothing was lost"),
        pytest.param(changed(checkpoint_seconds=None, advised_interval_seconds=None), -1,
                     "checkpoints: 3, the last one 1m ago, one in 30s of work", id="no cost, no advice"),
        pytest.param(changed(checkpoints=0, advised_interval_seconds=None, note="save"), 1, "note: save", id="none"),
    ],
)  # fmt: skip
def test_what_the_time_of_a_task_was_worth_in_sentences(
    goodput: Goodput, line: int, says: str
) -> None:
    assert list(goodput_sentences(goodput, 1000.0))[line] == says


@pytest.mark.parametrize(
    ("times", "says"),
    [
        pytest.param({}, "", id="nothing is known"),
        pytest.param({"save_seconds": 0.12}, "run 2: the last save took 0.12s", id="saved"),
        pytest.param({"load_seconds": 2.0, "save_seconds": 0.12, "write_seconds": 41.2},
                     "run 2: its checkpoint was loaded in 2s, the last save took 0.12s,"
                     " the last write from memory to disk took 41s", id="all"),
    ],
)  # fmt: skip
def test_how_long_the_checkpoints_of_a_run_took(times: dict[str, float], says: str) -> None:
    assert checkpoint_times_sentence(Run(number=2, **times)) == says


def test_a_task_that_held_no_nodes_says_nothing() -> None:
    assert list(goodput_sentences(Goodput(note="save"), 1000.0)) == []
