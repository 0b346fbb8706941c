"""The inequalities of docs/contributing/fencing.md hold for each `fence_after` that an operator may set."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.domain.timing import (
    CLOCK_DRIFT,
    FULL_MARGIN_FROM,
    KILL_SECONDS,
    LEADER_SECONDS,
    PAUSE_SECONDS,
    Timing,
)
from hai_backend.server.election.next_action import SILENT_SECONDS


@given(st.floats(FULL_MARGIN_FROM, 86_400.0))
def test_a_lease_is_over_and_its_program_dead_before_a_successor_may_start(fence: float) -> None:
    last_renewal = LEADER_SECONDS  # after the time from which the new leader counts
    dead = timing_dead(Timing(fence_after=fence))
    assert last_renewal + dead <= fence


def timing_dead(timing: Timing) -> float:
    """Return when nothing of the rank runs any more after its last renewal, by the clock of the server."""
    return timing.lease * (1 + CLOCK_DRIFT) + PAUSE_SECONDS + KILL_SECONDS


@given(st.floats(0.5, 86_400.0), st.floats(0.05, 60.0))
def test_a_fence_of_any_length_leaves_a_lease_that_ends_before_it(
    fence: float, beat: float
) -> None:
    timing = Timing(beat, fence)
    assert 0 < timing.lease < fence
    assert 0 < timing.end_before < timing.lease


@given(st.floats(0.05, 60.0), st.just(0.0) | st.floats(0.5, 86_400.0))
def test_silence_is_shown_after_more_than_one_heartbeat_and_a_stream_is_opened_again_in_a_lease(
    beat: float, fence: float
) -> None:
    timing = Timing(beat, fence)
    assert timing.interval <= beat
    assert timing.interval < timing.silent_after < timing.stream_patience < timing.lease


def test_silence_is_shown_after_ten_seconds() -> None:
    assert Timing().silent_after == 10.0


def test_without_a_fence_leases_never_expire() -> None:
    assert Timing(fence_after=0.0).lease == inf


def test_the_leader_constant_is_that_of_the_election() -> None:
    assert LEADER_SECONDS == SILENT_SECONDS


@pytest.mark.parametrize(("fence", "lease"), [(10.0, 8.0), (600.0, 581.4)])
def test_examples(fence: float, lease: float) -> None:
    assert Timing(fence_after=fence).lease == pytest.approx(lease)
