"""Ranks whose agents do not answer the server: which ones, since when, and one sentence about it.

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
    """The silent agents of one task. At least one agent is silent."""

    ranks: tuple[int, ...]  # whose agents are silent, in order
    rank_count: int  # ranks of the run; 0: unknown
    since: float  # last message of the agent that has been silent for longest; seconds since 1970


def silent_agents_of_run(run: Run) -> SilentAgents | None:
    """The silent agents of a run, or None."""
    silent = {r.index: _seconds(r.silent_since_time) for r in run.ranks if is_silent(r)}
    return _silence(silent, len(run.ranks))


def without_rank_number(silence: SilentAgents) -> SilentAgents:
    """For a narrow cell: the sentence about a single rank does not name the rank."""
    return replace(silence, rank_count=1) if len(silence.ranks) == 1 else silence


def silent_agents_on_node(node: Node) -> Mapping[int, SilentAgents]:
    """The silent agents on a node, by the number of the task that they belong to."""
    silent: dict[int, dict[int, float]] = {}
    for tenant in node.tenants:
        if tenant.HasField("silent_since_time"):
            ranks = silent.setdefault(tenant.task_id, {})
            ranks[tenant.rank] = _seconds(tenant.silent_since_time)
    found = {task: _silence(ranks, 0) for task, ranks in silent.items()}
    return {task: silence for task, silence in found.items() if silence}


def silent_agent_of(holder: Rank | NodeTenant) -> SilentAgents | None:
    """The silent agent of one rank, or None."""
    if not holder.HasField("silent_since_time"):
        return None
    return SilentAgents((0,), 1, _seconds(holder.silent_since_time))


def is_silent(rank: Rank) -> bool:
    """True while the agent of the rank does not answer the server."""
    return rank.HasField("silent_since_time")


def silent_agents_text(silence: SilentAgents, now: float, *, chinese: bool = False) -> str:
    """`agent silent for 40 s`; `agents of 3 of 8 ranks silent, longest for 2 min`. `now`: seconds since 1970."""
    facts = {
        "rank": silence.ranks[0],
        "count": len(silence.ranks),
        "all": silence.rank_count,
        "span": duration_text(now - silence.since),
    }
    return _PHRASES[_case(silence)][chinese].format(**facts)


def _case(silence: SilentAgents) -> str:
    count, ranks = len(silence.ranks), silence.rank_count
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
    """The two largest units: `40 s`, `3 min 20 s`, `2 h`, `4 d 3 h`; `0 s` for a time in the future."""
    remaining = max(0, int(seconds))
    parts: list[tuple[int, str]] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, remaining = divmod(remaining, size)
        if count or parts:
            parts.append((count, unit))
    parts_text = [f"{count} {unit}" for count, unit in parts[:2] if count]
    return " ".join(parts_text) or "0 s"


def _silence(silent: Mapping[int, float], rank_count: int) -> SilentAgents | None:
    if not silent:
        return None
    return SilentAgents(tuple(sorted(silent)), rank_count, min(silent.values()))


def _seconds(time: Timestamp) -> float:
    return time.seconds + time.nanos / 1e9
