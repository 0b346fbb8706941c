"""Node ports that users have reserved for services of their tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Port:
    """A port that forwards to a TCP service of the running task with this user and name."""

    node_port: int
    user: str
    task_name: str
    service: str
    created_at: float = 0.0


def ports_of_task(ports: Iterable[Port], user: str, task_name: str) -> dict[str, int]:
    """Return the reserved ports of a task by service name."""
    return {p.service: p.node_port for p in ports if (p.user, p.task_name) == (user, task_name)}
