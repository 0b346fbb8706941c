"""The output of `--dry-run`: the task as yaml, and as comments what the scheduler would do with it.

The output is a valid task file and can be submitted as it is.
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
    """Return 0 if the task could ever start."""
    return _NEVER if answer.outcome == "NEVER" else 0


def as_data(spec: TaskSpec, answer: DryRunTaskResponse) -> dict[str, Any]:
    """Return the fields of the spec, and the server's answer in the field `dry_run`."""
    from hai_tui.formatting.documents import to_dict

    prediction = to_dict(answer)
    prediction.pop("task", None)
    return to_dict(spec) | {"dry_run": prediction}


def as_yaml(spec: TaskSpec, answer: DryRunTaskResponse) -> str:
    """Return the spec as yaml, and the server's answer as comments below it."""
    from hai.client.taskfile.spec import to_yaml

    lines = (f"# {printable(line)}\n" for line in dry_run_sentences(answer))
    return to_yaml(spec) + "".join(lines)


def dry_run_sentences(answer: DryRunTaskResponse) -> Iterator[str]:
    """Yield what the scheduler would do, line by line: start or wait, whom it would suspend, and the quotas."""
    yield answer.message
    yield from (f"  {_victim_text(victim)}" for victim in answer.victims)
    yield from (f"  {_quota_text(row)}" for row in answer.quotas)
    if answer.ahead:
        yield text("why.ahead")
        yield from (f"  {task_ahead_text(other)}" for other in answer.ahead)
    if answer.flips:
        yield text("why.help")
        yield from (f"  {flip.message}" for flip in answer.flips)


def task_ahead_text(task: TaskAhead) -> str:
    """Return one line about a task that is ahead in the queue."""
    nodes = "1 node" if task.node_count == 1 else f"{task.node_count} nodes"
    return "  ".join(filter(None, (str(task.id), task.name, task.user, nodes, task.rule)))


def _victim_text(victim: Victim) -> str:
    facts = {"id": victim.id, "user": victim.user, "nodes": ", ".join(victim.nodes)}
    if victim.asked:
        return text("dry.leaving", **facts)
    lost, cost = (
        f"{s:.0f} node-seconds" for s in (victim.lost_node_seconds, victim.cost_node_seconds)
    )
    return text("dry.victim", **facts, lost=lost, cost=cost)


def _quota_text(row: QuotaUse) -> str:
    name = text("dry.total") if row.priority < 0 else priority_name(row.priority)
    numbers = {key: f"{getattr(row, key):.4g}" for key in ("held", "allowed", "after")}
    return text("dry.quota", row=name, **numbers)
