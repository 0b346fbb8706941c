"""Ports of the nodes that users keep for services of their tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Port:
    """Leads to a tcp service of whichever task of that user and name runs."""

    node_port: int
    user: str
    task_name: str
    service: str
    created_at: float = 0.0


def ports_of_task(ports: Iterable[Port], user: str, task_name: str) -> dict[str, int]:
    """What a launcher gives a task: by name of a service, the port that is kept for it."""
    return {p.service: p.node_port for p in ports if (p.user, p.task_name) == (user, task_name)}
