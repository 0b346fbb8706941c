"""Tasks and nodes as rows of the page's lists: one short JSON text each, made once for all tabs.

The fields are read one by one, because MessageToDict would take seconds for 10 000 tasks.
"""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from hai.client.tasks.silent_agents import SilentAgents, silent_agent_of, silent_agents_of_run
from hai.client.text.formatting import enum_name
from hai.v1.node_pb2 import NODE_STATE_READY, Node, NodeTenant
from hai.v1.task_pb2 import RunState, Task, TaskOutcome, TaskState


def task_text(task: Task) -> str:
    """Return the row of a task as JSON text."""
    return json.dumps(task_row(task), separators=(",", ":"), ensure_ascii=False)


def node_text(node: Node) -> str:
    """Return the row of a node as JSON text."""
    return json.dumps(node_row(node), separators=(",", ":"), ensure_ascii=False)


def task_row(task: Task) -> dict[str, Any]:
    """Return the row of a task without its empty fields."""
    row = {
        "id": task.id,
        "user": task.user,
        "name": task.name,
        "type": task.task_type,
        "group": task.group,
        "zone": task.zone,
        "nodes": task.node_count,
        "state": enum_name(TaskState, task.state),
        "outcome": enum_name(TaskOutcome, task.outcome) if task.outcome else "",
        "priority": task.priority,
        "tags": list(task.tags),
        "starred": task.starred,
        "held": task.held,
        "runs": task.run_count,
        "run": enum_name(RunState, task.run.state) if task.run.state else "",
        "why": task.waiting.message or task.reason,
        "why_code": task.waiting.reason,
        "place": task.waiting.queue_place,
        "awaited": list(task.awaited),
        "run_seconds": round(task.run_seconds, 1),
        "created": seconds(task.create_time),
        "started": seconds(task.start_time),
        "finished": seconds(task.finish_time),
        "run_started": seconds(task.run.start_time),
        "silent": _silence(silent_agents_of_run(task.run)),
        "version": task.version,
    }
    return {k: v for k, v in row.items() if v or k in ("priority", "version")}


def node_row(node: Node) -> dict[str, Any]:
    """Return a node for the map of the cluster."""
    return {
        "name": node.name,
        "group": node.group,
        "zone": node.zone,
        "ready": node.state == NODE_STATE_READY,
        "cordoned": node.cordoned,
        "gpus": node.gpus,
        "reason": node.reason,
        "tenants": [_tenant_row(tenant) for tenant in node.tenants],
    }


def _tenant_row(tenant: NodeTenant) -> dict[str, Any]:
    row = {
        "task": tenant.task_id,
        "name": tenant.task_name,
        "user": tenant.user,
        "rank": tenant.rank,
    }
    silent = silent_agent_of(tenant)
    return {**row, "silent": round(silent.since, 3)} if silent else row


def _silence(silence: SilentAgents | None) -> dict[str, Any] | None:
    """Return the silent ranks in a form that is as short for a thousand ranks as for one."""
    if silence is None:
        return None
    return {
        "count": len(silence.ranks),
        "rank": silence.ranks[0],
        "of": silence.rank_count,
        "since": round(silence.since, 3),
    }


def seconds(time: Timestamp) -> float:
    """Return seconds since 1970; 0 for a time that is not set."""
    return round(time.seconds + time.nanos / 1e9, 3)
