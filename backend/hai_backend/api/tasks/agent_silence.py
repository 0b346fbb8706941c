"""Explains silent agents of a task: what is known, what the platform does, and what a person can do. Pure.

The sentences name times instead of durations, so that they stay true while they are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isinf

from hai.v1 import task_service_pb2 as pb
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.domain.formatting import format_count, format_list, format_utc
from hai_backend.domain.node import Node, NodeState
from hai_backend.domain.task import Rank, RunState, Task

_MAX_NAMED = 5  # ranks with a sentence of their own

_PROGRAM_MAY_RUN = (
    "the network, the node or the agent's process may be the cause; the program may still run: its output and "
    "its exit will be known when the agent connects again"
)
_ENDING_STATES = (RunState.STOPPING, RunState.TERMINATING)
_NODES_NOT_FREE = "its nodes stay reserved until every process of the run is known to have ended"


def silent_ranks(task: Task) -> list[Rank]:
    """Return the ranks with a silent agent, the one with the longest silence first."""
    ranks = task.run.ranks if task.run is not None and not task.waiting else ()
    silent = [rank for rank in ranks if rank.silent_since is not None and not rank.state.terminated]
    return sorted(silent, key=lambda rank: (rank.silent_since or 0.0, rank.index))


def describe_silence(
    task: Task, ranks: Sequence[Rank], nodes: Mapping[str, Node], lease_seconds: float
) -> Iterator[str]:
    """Yield what is known, and what the platform does.

    `lease_seconds` is how long a rank runs on without answers to its heartbeats. It may be infinite.
    """
    for rank in ranks[:_MAX_NAMED]:
        yield f"the agent of rank {rank.index} on {rank.node} was last heard at {format_utc(rank.silent_since or 0.0)}"
    if (more := len(ranks) - _MAX_NAMED) > 0:
        yield f"{format_count(more, 'more agent')} {'is' if more == 1 else 'are'} silent"
    yield from _describe_nodes(ranks, nodes)
    yield _PROGRAM_MAY_RUN
    if _run_state(task) in (*_ENDING_STATES, RunState.SUSPENDING):
        yield _NODES_NOT_FREE
    else:
        yield _describe_lease(lease_seconds)


def _describe_nodes(ranks: Sequence[Rank], nodes: Mapping[str, Node]) -> Iterator[str]:
    for name in sorted({rank.node for rank in ranks}):
        node = nodes.get(name)
        if node is not None and node.state is NodeState.NOT_READY:
            yield f"node {name} is not ready" + (f": {node.reason}" if node.reason else "")


def _describe_lease(lease_seconds: float) -> str:
    no_restart = "the task keeps its nodes, and no second program is started, until"
    if isinf(lease_seconds):
        return f"{no_restart} the agent connects again, the node is lost or somebody stops the task"
    return (
        f"{no_restart} the agent connects again or the node is lost; a rank whose heartbeats are not answered for "
        f"{lease_seconds:.0f} s ends its program by itself, on its node"
    )


def suggest_actions(task: Task, ranks: Sequence[Rank]) -> Iterator[str]:
    names, state = sorted({rank.node for rank in ranks}), _run_state(task)
    if state not in (*_ENDING_STATES, RunState.SUSPENDING):
        yield "wait: when the agent connects again, the task goes on, and the missing output arrives"
    yield (
        f"check {'node' if len(names) == 1 else 'nodes'} {format_list(names)} (hai nodes): is it reachable, is it "
        "overloaded, does the agent's process run?"
    )
    if state not in _ENDING_STATES:
        yield f"end the task: hai stop {task.id}"


def _run_state(task: Task) -> RunState | None:
    return task.run.state if task.run is not None else None


def silence_to_proto(rank: Rank) -> pb.SilentRank:

    return pb.SilentRank(
        rank=rank.index, node=rank.node, since_time=to_timestamp(rank.silent_since)
    )
