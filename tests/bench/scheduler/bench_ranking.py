"""How well the default policy ranks, packs and keeps priorities, on real traces (tests/testdata/traces).

It is compared with a reference simulator on the same traces, node counts and costs (5 s to stop, 60 s to start again):
EASY backfill with perfect estimates is 0 %, and a clairvoyant policy of shortest remaining time with the same costs is
100 % of the gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hai_backend.scheduler import Policy
from hai_backend.sim.replay.replay import Cluster, replay
from hai_backend.sim.report.metrics import metrics
from hai_backend.sim.traces.reader import read
from tests.bench.figures import Figure

TRACES = Path(__file__).parents[2] / "testdata" / "traces"


@dataclass(frozen=True, slots=True)
class Slice:
    """A trace, its node count at load 0.9, and the results of other policies, in hours."""

    name: str
    nodes: int
    easy: float  # mean time in the system
    clairvoyant: float
    high_wait: float  # mean wait of HIGH under HAI's time slices
    low_wait: float  # mean wait of LOW under EASY
    packed_nodes: int = 0
    # mean time in the system of the best policy that does not know run times, with shared nodes
    packed: float = 0.0
    time_scale: float = 1.0


SLICES = (
    Slice("itp04", 117, 9.2737, 5.6784, 0.00106, 4.574, 78, 4.80),
    Slice("itp06", 15, 39.9349, 10.3645, 0.43629, 35.522, 13, 15.6),
    Slice("philly_a", 138, 26.0694, 10.6075, 0.00067, 16.928, 69, 9.53),
    Slice("kalos_llm", 147, 33.1406, 6.4448, 0.00106, 29.563, time_scale=5.0),
)


def figures() -> Iterator[Figure]:
    gaps = [_gap(part) for part in SLICES]
    yield from gaps
    mean = sum(figure.value for figure in gaps) / len(gaps)
    yield Figure("ranking, gap closed, mean", mean, "%", 85, at_least=True)
    for part in SLICES:
        yield from _priorities(part)
        if part.packed_nodes:
            yield _packing(part)


def _run(part: Slice, cluster: Cluster, *, flat: bool) -> dict[str, Any]:
    jobs = read(
        TRACES / f"{part.name}.csv.gz",
        gpus_per_node=cluster.gpus_per_node,
        time_scale=part.time_scale,
        flat_priority=flat,
    )
    return metrics(replay(jobs, cluster, Policy()), packed=cluster.packed)


def _gap(part: Slice) -> Figure:
    """Return how much of the gap between EASY backfill and the clairvoyant policy is closed, in percent."""
    mean = _run(part, Cluster(part.nodes), flat=True)["jct_mean_h"]
    closed = (part.easy - mean) / (part.easy - part.clairvoyant)
    return Figure(f"ranking, gap closed, {part.name}", 100 * closed, "%", 75, at_least=True)


def _packing(part: Slice) -> Figure:
    mean = _run(part, Cluster(part.packed_nodes, packed=True), flat=True)["jct_mean_h"]
    return Figure(f"packing, mean time in the system, {part.name}", mean, "h", part.packed)


def _priorities(part: Slice) -> Iterator[Figure]:
    """Yield waits, useful time and suspensions with the priorities of the trace."""
    found = _run(part, Cluster(part.nodes), flat=False)
    waits, name = found["wait_by_priority_h"], f"priorities, {part.name}"
    yield Figure(f"{name}, mean wait of HIGH", waits["HIGH"], "h", part.high_wait)
    yield Figure(f"{name}, mean wait of LOW", waits["LOW"], "h", 2 * part.low_wait)
    yield Figure(f"{name}, useful share", found["useful_share"], "", 0.99, at_least=True)
    yield Figure(f"{name}, suspensions of a job, mean", found["suspensions_per_job"], "", 1.5)
    yield Figure(f"{name}, suspensions of a job, most", found["suspensions_max"], "", 100)
    if part.name in ("itp04", "philly_a"):
        yield Figure(f"{name}, saturation", found["saturation"], "", 0.99, at_least=True)
