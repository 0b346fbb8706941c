"""Simulations with random faults. HAI_STORMS=50 sets their number.

`python -m tests.support.simulation 17 1` repeats one of them.
"""

from __future__ import annotations

import os

import pytest

from tests.support.simulation.simulation import Simulation

STORMS = int(os.environ.get("HAI_STORMS", "1000"))
EACH = 10


@pytest.mark.parametrize("first", range(0, STORMS, EACH))
def test_whatever_befalls_a_cluster_the_main_job_is_done(first: int) -> None:
    for seed in range(first, min(first + EACH, STORMS)):
        Simulation(seed).run()


def test_the_same_seed_is_the_same_storm() -> None:
    one, two = Simulation(4), Simulation(4)
    one.run()
    two.run()
    assert one.history == two.history
    assert len(one.history) > 20
