"""Columns of the servers in a Kubernetes cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hai_tui.formatting.table import Column, View

Server = Mapping[str, Any]

SERVERS = View(
    key="servers",
    name=lambda s: str(s["name"]),
    empty="cluster.no_servers",
    columns=(
        Column("name", lambda s, now: s["name"]),
        Column("ready", lambda s, now: "yes" if s["ready"] else "no"),
        Column("phase", lambda s, now: s["phase"]),
        Column("restarts", lambda s, now: str(s["restarts"]), right=True),
        Column("node", lambda s, now: s["node"] or "-"),
        Column("image", lambda s, now: s["image"], folds=True),
        Column("why", lambda s, now: s["why"] or "-", folds=True),
    ),
)


def servers_of_pods(pods: Mapping[str, Any]) -> Iterator[Server]:
    """Yield one server for each pod in the output of `kubectl get pods -o json`."""
    for pod in pods["items"]:
        status = pod.get("status") or {}
        containers = status.get("containerStatuses") or []
        yield {
            "name": pod["metadata"]["name"],
            "ready": bool(containers) and all(c["ready"] for c in containers),
            "phase": status.get("phase", ""),
            "restarts": sum(c["restartCount"] for c in containers),
            "node": pod["spec"].get("nodeName", ""),
            "image": pod["spec"]["containers"][0]["image"],
            "why": _not_ready_reason(status, containers),
        }


def _not_ready_reason(status: Mapping[str, Any], containers: list[Any]) -> str:
    """Return the reason that Kubernetes gives for a pod that is not ready."""
    for container in containers:
        waiting = container.get("state", {}).get("waiting")
        if waiting:
            return ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", ""))
    return ""
