"""What is used on each node just now: the last minute of the ranks that are on it, together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hai.v1 import usage_service_pb2 as pb
from hai_backend.domain.task import Task, holders
from hai_backend.domain.usage import Use
from hai_backend.launch.base import RankKey


def node_usage(
    tasks: Iterable[Task], recent: Callable[[RankKey], Use | None], wanted: Callable[[str], bool]
) -> list[pb.NodeUsage]:
    """By name; nodes on which nothing was measured are left out."""
    found: dict[str, list[Use]] = {}
    for task, run, rank in holders(tasks):
        use = recent(RankKey(task.id, run.number, rank.index)) if wanted(rank.node) else None
        if use is not None:
            found.setdefault(rank.node, []).append(use)
    return [_together(node, found[node]) for node in sorted(found)]


def _together(node: str, uses: Sequence[Use]) -> pb.NodeUsage:
    usage = pb.NodeUsage(
        node=node,
        cpus=sum(use.cpus / use.beats for use in uses),
        memory_bytes=round(sum(use.memory_bytes / use.beats for use in uses)),
    )
    if seen := [use for use in uses if use.gpu_beats]:
        usage.gpu_utilisation = sum(use.gpu_utilisation / use.gpu_beats for use in seen) / len(seen)
        usage.gpu_memory_bytes = round(sum(use.gpu_memory_bytes / use.gpu_beats for use in seen))
    return usage
