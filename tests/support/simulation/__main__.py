"""Runs simulations: `python -m tests.support.simulation FIRST_SEED COUNT`."""

from __future__ import annotations

import logging
import sys

import structlog

from tests.support.simulation.simulation import Simulation


def main(first: int, count: int) -> int:
    """Run simulations with `count` seeds from `first`. Print each failure, and return how many failed."""
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    wrong = 0
    for seed in range(first, first + count):
        try:
            Simulation(seed).run()
        except Exception as error:
            wrong += 1
            print(f"seed {seed}: {error.__cause__ or error!r}", flush=True)
    print(f"{count} storms, {wrong} went wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]))))
