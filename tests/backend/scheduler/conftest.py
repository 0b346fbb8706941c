"""A strategy for random small clusters in valid states, as the live loop passes them to the scheduler."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import strategies as st

from hai_backend.domain.node import Group, Node
from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.scheduling.snapshot import SchedTask, Snapshot
from hai_backend.scheduler.testing import NOW, leaving, node, queued, quota, running, snap, starting

USERS = "uvw"
GPUS = 4
ASKED = (*LEVELS, Priority.AUTO)


def random_nodes(packed: bool) -> st.SearchStrategy[list[Node]]:
    one = st.tuples(
        st.sampled_from(["", "A"]),
        st.sampled_from(["l1", "l2"]),
        st.sampled_from([0, 0, 0, 1, 2]),
        st.sampled_from([GPUS] if packed else [GPUS, GPUS, 1]),
    )
    return st.lists(one, min_size=1, max_size=7).map(
        lambda facts: [
            node(f"n{i}", zone=zone, topology=(leaf,), gpus=gpus, cordoned=bad == 1, up=bad != 2)
            for i, (zone, leaf, bad, gpus) in enumerate(facts)
        ]
    )


@st.composite
def placed_tasks(draw: st.DrawFn, nodes: list[Node], packed: bool) -> list[SchedTask]:
    """Runs on nodes, never more than fits."""
    sizes = {node.name: node.gpus for node in nodes}
    free = dict(sizes)
    tasks: list[SchedTask] = []
    for task in range(101, 101 + draw(st.integers(0, 6))):
        gpu = draw(st.sampled_from([0, 1, 2, 3])) if packed else 0
        fitting = [name for name, gpus in free.items() if gpus >= (gpu or sizes[name])]
        names = fitting[: draw(st.integers(1, 3))]
        if not names:
            continue
        for name in names:
            free[name] -= gpu or sizes[name]
        kind = draw(st.sampled_from([running, running, running, leaving, starting]))
        level = draw(st.sampled_from(LEVELS))
        facts = {
            "since": draw(st.sampled_from([0.0, 100.0, 5000.0, 9000.0])),
            "priority": draw(st.sampled_from([level, Priority.AUTO])),
            "user": draw(st.sampled_from(USERS)),
            "gpu": gpu,
        }
        tasks.append(kind(task, " ".join(names), level, **facts))
    return tasks


@st.composite
def queued_tasks(draw: st.DrawFn, packed: bool, most: int) -> list[SchedTask]:
    return [
        queued(
            task,
            draw(st.integers(1, 4)),
            draw(st.sampled_from(ASKED)),
            user=draw(st.sampled_from(USERS)),
            zone=draw(st.sampled_from(["", "", "A"])),
            created_at=NOW - draw(st.sampled_from([0.0, 1000.0, 8000.0, 90_000.0])),
            custom_rank=draw(st.sampled_from([0.0, 0.0, 1.0, -1.0])),
            gpu=draw(st.sampled_from([0, 1, 2, 3])),
        )
        for task in range(1, 1 + draw(st.integers(1, most)))
    ]


@st.composite
def random_snapshots(draw: st.DrawFn, most: int = 8, quotas: bool = True) -> Snapshot:
    packed = draw(st.booleans())
    nodes = draw(random_nodes(packed))
    row = st.builds(quota, st.sampled_from(USERS), st.sampled_from(ASKED), st.integers(0, 4))
    rows = draw(st.lists(row, max_size=5)) if quotas else []
    runs = draw(placed_tasks(nodes, packed))
    waiting = draw(queued_tasks(packed, most))
    return snap(Group("default", packed), nodes, *rows, *runs, *waiting)


@pytest.fixture(scope="session")
def snapshots() -> Callable[..., st.SearchStrategy[Snapshot]]:
    """The strategy, for `data.draw(snapshots())`."""
    return random_snapshots
