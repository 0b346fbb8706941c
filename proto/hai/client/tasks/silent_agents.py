"""Finds ranks whose agents do not answer the server, and describes them in one sentence.

The command line, the terminal app and notebooks use this sentence. The panel of JupyterLab counts the seconds in the
browser, so `jupyter_ext/src/model/agent_silence.ts` builds the same sentence there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from hai.v1.node_pb2 import Node, NodeTenant
    from hai.v1.task_pb2 import Rank, Run


@dataclass(frozen=True, slots=True)
class SilentAgents:
    """The silent agents of one task, or of its ranks on one node. At least one agent is silent."""

    ranks: tuple[int, ...]  # the ranks whose agents are silent, in order
    rank_count: int  # number of ranks of the run; 0 if unknown
    since: float  # when the agent that has been silent for longest sent its last message; seconds since 1970


def silent_agents_of_run(run: Run) -> SilentAgents | None:
    """Return the silent agents of a run, or None."""
    silent = {r.index: _to_seconds(r.silent_since_time) for r in run.ranks if is_silent(r)}
    return _silent_agents(silent, len(run.ranks))


def without_rank_number(silent_agents: SilentAgents) -> SilentAgents:
    """Return a copy whose sentence does not name the rank if only one is silent; for narrow cells."""
    return replace(silent_agents, rank_count=1) if len(silent_agents.ranks) == 1 else silent_agents


def silent_agents_on_node(node: Node) -> Mapping[int, SilentAgents]:
    """Return the silent agents on a node by task id."""
    silent: dict[int, dict[int, float]] = {}
    for tenant in node.tenants:
        if tenant.HasField("silent_since_time"):
            ranks = silent.setdefault(tenant.task_id, {})
            ranks[tenant.rank] = _to_seconds(tenant.silent_since_time)
    found = {task: _silent_agents(ranks, 0) for task, ranks in silent.items()}
    return {task: silent_agents for task, silent_agents in found.items() if silent_agents}


def silent_agent_of(holder: Rank | NodeTenant) -> SilentAgents | None:
    """Return the silent agent of one rank, or None."""
    if not holder.HasField("silent_since_time"):
        return None
    return SilentAgents((0,), 1, _to_seconds(holder.silent_since_time))


def is_silent(rank: Rank) -> bool:
    """Return whether the agent of the rank does not answer the server."""
    return rank.HasField("silent_since_time")


def silent_agents_text(silent_agents: SilentAgents, now: float, *, chinese: bool = False) -> str:
    """Return a sentence such as `agents of 3 of 8 ranks silent, longest for 2 min`. `now` is in seconds since 1970."""
    facts = {
        "rank": silent_agents.ranks[0],
        "count": len(silent_agents.ranks),
        "all": silent_agents.rank_count,
        "span": duration_text(now - silent_agents.since),
    }
    return _PHRASES[_phrase_key(silent_agents)][chinese].format(**facts)


def _phrase_key(silent_agents: SilentAgents) -> str:
    count, ranks = len(silent_agents.ranks), silent_agents.rank_count
    if count == 1:
        return "one" if ranks <= 1 else "one of several"
    return "several" if not ranks else "all" if count == ranks else "several of several"


_PHRASES: Mapping[str, tuple[str, str]] = {
    "one": ("agent silent for {span}", "agent 已失联 {span}"),
    "one of several": (
        "agent of rank {rank} silent for {span}",
        "rank {rank} 的 agent 已失联 {span}",
    ),
    "several": (
        "agents of {count} ranks silent, longest for {span}",
        "{count} 个 rank 的 agent 失联，最长 {span}",
    ),
    "several of several": (
        "agents of {count} of {all} ranks silent, longest for {span}",
        "{all} 个 rank 中 {count} 个的 agent 失联，最长 {span}",
    ),
    "all": (
        "agents of all {all} ranks silent, longest for {span}",
        "全部 {all} 个 rank 的 agent 失联，最长 {span}",
    ),
}


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units: `40 s`, `3 min 20 s`, `4 d 3 h`. A negative duration gives `0 s`."""
    remaining = max(0, int(seconds))
    parts: list[tuple[int, str]] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, remaining = divmod(remaining, size)
        if count or parts:
            parts.append((count, unit))
    parts_text = [f"{count} {unit}" for count, unit in parts[:2] if count]
    return " ".join(parts_text) or "0 s"


def _silent_agents(silent: Mapping[int, float], rank_count: int) -> SilentAgents | None:
    if not silent:
        return None
    return SilentAgents(tuple(sorted(silent)), rank_count, min(silent.values()))


def _to_seconds(time: Timestamp) -> float:
    return time.seconds + time.nanos / 1e9
