"""Predicted starts in words."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from hai.v1.task_pb2 import PredictedStart
from hai_tui.views.start_forecast import start_sentences, start_text

NOW = 1_800_000_000.0  # 08:00 UTC


@pytest.fixture(autouse=True)
def _utc() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def at(seconds: float | None) -> Timestamp | None:
    return None if seconds is None else Timestamp(seconds=int(NOW + seconds))


@pytest.mark.parametrize(
    ("p10", "p90", "said"),
    [
        pytest.param(3599, 7201, "~08:59-10:01", id="rounded outward"),
        pytest.param(3600, 3600, "~09:00", id="all futures agree"),
        pytest.param(5, 120, "soon", id="soon"),
        pytest.param(600, None, "~08:10-?", id="no end in sight"),
        pytest.param(3600, 90_000, "~09:00-01-16 09:00", id="tomorrow"),
        pytest.param(None, None, "-", id="none"),
    ],
)
def test_a_predicted_start_in_a_column(p10: float | None, p90: float | None, said: str) -> None:
    assert start_text(PredictedStart(p10=at(p10), p90=at(p90)), NOW) == said


def test_a_predicted_start_in_a_sentence() -> None:
    start = PredictedStart(p10=at(600), p50=at(900), p90=at(1200), basis="19 futures")
    told = "predicted start: ~08:10-08:20 (odds 80 %), as likely before as after 08:15; from 19 futures"
    assert start_sentences(start, NOW) == [told]
    late = (
        "predicted start: after 08:10 (odds 90 %), likely later than was looked at; from 19 futures"
    )
    assert start_sentences(PredictedStart(p10=at(600), basis="19 futures"), NOW) == [late]
    assert start_sentences(PredictedStart(reason="thin"), NOW) == ["no predicted start: thin"]
    assert start_sentences(PredictedStart(), NOW) == []


def test_where_predicted_starts_are_shown(hai, fake) -> None:
    start = fake.world.tasks[2].waiting.predicted_start
    start.CopyFrom(PredictedStart(p10=at(5400), p50=at(6000), p90=at(7200), basis="19 futures"))
    assert "~09:30-10:00" in hai("queue").out
    for command in ("why", "status"):
        assert "predicted start: ~09:30-10:00" in hai(command, "2").out
    told = json.loads(hai("why", "2", "--json").out)["waiting"]["predicted_start"]
    assert (told["p50"], told["basis"]) == ("2027-01-15T09:40:00Z", "19 futures")
