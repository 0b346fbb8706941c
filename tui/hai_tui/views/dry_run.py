"""What `--dry-run` prints: the task, and as comments of its yaml what the scheduler would do with it.

So the output can still be submitted as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hai_tui.formatting.table import printable
from hai_tui.formatting.values import priority_name
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.v1.task_service_pb2 import DryRunTaskResponse, QuotaUse, TaskAhead, Victim
    from hai.v1.task_spec_pb2 import TaskSpec

_NEVER = 1


def exit_code(answer: DryRunTaskResponse) -> int:
    """0 when the task could ever start."""
    return _NEVER if answer.outcome == "NEVER" else 0


def as_data(spec: TaskSpec, answer: DryRunTaskResponse) -> dict[str, Any]:
    """The spec, and beside its fields `dry_run`."""
    from hai_tui.formatting.documents import to_dict

    found = to_dict(answer)
    found.pop("task", None)
    return to_dict(spec) | {"dry_run": found}


def as_yaml(spec: TaskSpec, answer: DryRunTaskResponse) -> str:
    """The spec, and a comment."""
    from hai.client.taskfile.spec import to_yaml

    lines = (f"# {printable(line)}\n" for line in sentences(answer))
    return to_yaml(spec) + "".join(lines)


def sentences(answer: DryRunTaskResponse) -> Iterator[str]:
    """What a person wants to know of it."""
    yield answer.message
    yield from (f"  {_victim(victim)}" for victim in answer.victims)
    yield from (f"  {_quota(row)}" for row in answer.quotas)
    if answer.ahead:
        yield text("why.ahead")
        yield from (f"  {ahead(other)}" for other in answer.ahead)
    if answer.flips:
        yield text("why.help")
        yield from (f"  {flip.message}" for flip in answer.flips)


def ahead(other: TaskAhead) -> str:
    """One task that stands before it."""
    nodes = "1 node" if other.node_count == 1 else f"{other.node_count} nodes"
    return "  ".join(
        part for part in (str(other.id), other.name, other.user, nodes, other.rule) if part
    )


def _victim(victim: Victim) -> str:
    facts = {"id": victim.id, "user": victim.user, "nodes": ", ".join(victim.nodes)}
    if victim.asked:
        return text("dry.leaving", **facts)
    lost, cost = (
        f"{s:.0f} node-seconds" for s in (victim.lost_node_seconds, victim.cost_node_seconds)
    )
    return text("dry.victim", **facts, lost=lost, cost=cost)


def _quota(row: QuotaUse) -> str:
    name = text("dry.total") if row.priority < 0 else priority_name(row.priority)
    numbers = {key: f"{getattr(row, key):.4g}" for key in ("held", "allowed", "after")}
    return text("dry.quota", row=name, **numbers)
