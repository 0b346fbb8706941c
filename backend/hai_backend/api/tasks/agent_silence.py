"""What a task's silent agents mean, what the platform will do, and what a person can do. Pure.

The sentences name moments instead of durations: whoever shows them counts the seconds himself, and they stay true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isinf

from hai.v1 import task_service_pb2 as pb
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.domain.formatting import format_count, format_list, format_utc
from hai_backend.domain.node import Node, NodeState
from hai_backend.domain.task import Rank, RunState, Task

_NAMED = 5  # ranks that have a sentence of their own

_PROGRAM = (
    "the network, the node or the agent's process may be the cause; the program may run on unseen: what it prints, and "
    "whether it ends, will be known when the agent is heard again"
)
_ENDING = (RunState.STOPPING, RunState.TERMINATING)
_LEAVING = "nothing new starts in its place until every process of the run is known to have ended"


def silent_ranks(task: Task) -> list[Rank]:
    """Ranks whose agents are silent, the one that has been silent for longest first."""
    ranks = task.run.ranks if task.run is not None and not task.waiting else ()
    silent = [rank for rank in ranks if rank.silent_since is not None and not rank.state.terminated]
    return sorted(silent, key=lambda rank: (rank.silent_since or 0.0, rank.index))


def constraints(
    task: Task, ranks: Sequence[Rank], nodes: Mapping[str, Node], lease: float
) -> Iterator[str]:
    """What is known, and what the platform does. `lease`: seconds that a rank runs on unheard; inf: without limit."""
    for rank in ranks[:_NAMED]:
        yield f"the agent of rank {rank.index} on {rank.node} was last heard at {format_utc(rank.silent_since or 0.0)}"
    if (more := len(ranks) - _NAMED) > 0:
        yield f"{format_count(more, 'more agent')} {'is' if more == 1 else 'are'} silent"
    yield from _nodes(ranks, nodes)
    yield _PROGRAM
    yield _LEAVING if _state(task) in (*_ENDING, RunState.SUSPENDING) else _platform(lease)


def _nodes(ranks: Sequence[Rank], nodes: Mapping[str, Node]) -> Iterator[str]:
    for name in sorted({rank.node for rank in ranks}):
        node = nodes.get(name)
        if node is not None and node.state is NodeState.NOT_READY:
            yield f"node {name} is not ready" + (f": {node.reason}" if node.reason else "")


def _platform(lease: float) -> str:
    kept = "the task keeps its nodes, and no second program is started, until"
    if isinf(lease):
        return f"{kept} the agent is heard again, the node is lost or somebody stops the task"
    return (
        f"{kept} the agent is heard again or the node is lost; a rank whose heartbeats are not answered for "
        f"{lease:.0f} s ends its program by itself, on its node"
    )


def suggestions(task: Task, ranks: Sequence[Rank]) -> Iterator[str]:
    """What a person can do."""
    names, state = sorted({rank.node for rank in ranks}), _state(task)
    if state not in (*_ENDING, RunState.SUSPENDING):
        yield "wait: when the agent is heard again, the task goes on, and what was printed meanwhile arrives"
    yield (
        f"look at {'node' if len(names) == 1 else 'nodes'} {format_list(names)} (hai nodes): is it reachable, is it "
        "overloaded, does the agent's process stand still?"
    )
    if state not in _ENDING:
        yield f"end the task: hai stop {task.id}"


def _state(task: Task) -> RunState | None:
    return task.run.state if task.run is not None else None


def silence_to_proto(rank: Rank) -> pb.SilentRank:
    """One silent rank as a message."""
    return pb.SilentRank(
        rank=rank.index, node=rank.node, since_time=to_timestamp(rank.silent_since)
    )
