"""Runs schedules of all kinds of silence with real agents, supervisors and programs.

HAI_SILENCES sets the number of schedules and the first seed: `HAI_SILENCES=1000`, `HAI_SILENCES=1000:500`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.silence.schedules.runner import run_schedules
from tests.silence.schedules.schedule import PLAIN, Kind, schedule

COUNT, _, FIRST = os.environ.get("HAI_SILENCES", "32").partition(":")
SEEDS = range(int(FIRST or 0), int(FIRST or 0) + int(COUNT))


@pytest.mark.timeout(120 + 10 * len(SEEDS))
async def test_whatever_falls_silent_no_rank_runs_beside_its_successor(tmp_path: Path) -> None:
    figures = await run_schedules(SEEDS, tmp_path)
    print(figures)
    assert not figures.violations, "\n\n".join(figures.violations.values())


def test_schedules_are_made_from_their_seed_alone_and_show_every_kind() -> None:
    assert schedule(7) == schedule(7)
    seeds = range(len(PLAIN), len(PLAIN) + 200)
    kinds = {silence.kind for seed in seeds for silence in schedule(seed).silences}
    assert kinds == set(Kind)
