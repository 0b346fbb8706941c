"""What scheduling passes cost: the first one, and later ones with growing queues.

Each figure is the least of three runs, because other tenants of the host only add time: the same loop has taken 36 ms
and 66 ms within one second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hai_backend.sim.pass_timing import time_passes
from tests.bench.figures import Figure

_LARGE = {"nodes": 10_000, "running": 5_000, "users": 500, "groups": 20}
_SMALL = {"nodes": 1_500, "running": 1_500, "users": 100, "groups": 1}
_RUNS = 3


def least(settings: Mapping[str, int]) -> Mapping[str, Any]:
    """Return the least of each time over three runs."""
    runs = [time_passes(settings) for _ in range(_RUNS)]
    return {name: min(run[name] for run in runs) for name in runs[0]}


def figures() -> Iterator[Figure]:
    small = least({**_SMALL, "waiting": 10_000})
    yield Figure("pass, 1 500 nodes, 10k waiting, p99", small["steady_p99_ms"], "ms", 10)
    for waiting in (1_000, 10_000, 100_000):
        large = least({**_LARGE, "waiting": waiting})
        name = f"10 000 nodes, {waiting // 1000}k waiting"
        barred = waiting == 100_000
        yield Figure(f"pass from cold, {name}", large["cold_s"], "s", 1 if barred else None)
        for part, bar in (("p50", 10), ("p99", 50)):
            value = large[f"steady_{part}_ms"]
            yield Figure(f"steady pass, {name}, {part}", value, "ms", bar if barred else None)
