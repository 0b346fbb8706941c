"""Columns of dev containers, of their services and of ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hai.client.text.formatting import enum_name
from hai.v1.container_pb2 import Container, ServiceState, ServiceStatus
from hai_tui.formatting.table import Column, View, brief
from hai_tui.formatting.values import local, since, span
from hai_tui.i18n import text
from hai_tui.views.tasks import status, style

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task

_STATES = {"READY": "green", "FAILED": "red", "STOPPED": "dim"}


def container_kind(task: Task) -> str:
    """Return shared, dedicated or spot. With GPUs alone it is dedicated: a share always has CPUs and memory."""
    resource = task.spec.resource
    if resource.is_spot:
        return "spot"
    return "shared" if resource.cpu or resource.memory else "dedicated"


def reason_text(task: Task) -> str:
    """Return why the container ended or waits; empty if it runs."""
    return task.reason or task.waiting.message


def status_sentence(task: Task) -> str:
    """Return a sentence with the status of the container and its reason; empty if it runs."""
    status_name, reason = status(task), reason_text(task)
    if status_name == "RUNNING":
        return ""
    return text(
        "container.is", id=task.id, status=f"{status_name}: {reason}" if reason else status_name
    )


CONTAINERS = View(
    key="containers",
    name=lambda task: str(task.id),
    empty="none.containers",
    columns=(
        Column("id", lambda t, now: str(t.id), right=True),
        Column("name", lambda t, now: t.name, folds=True),
        Column("user", lambda t, now: t.user),
        Column("status", lambda t, now: status(t), style=style),
        Column("kind", lambda t, now: container_kind(t)),
        Column("group", lambda t, now: t.group),
        Column("age", lambda t, now: since(t.create_time, now), right=True),
        Column("why", lambda t, now: brief(reason_text(t)) or "-", folds=True),
        Column("node", lambda t, now: ",".join(r.node for r in t.run.ranks) or "-", wide=True),
        Column("created", lambda t, now: local(t.create_time), wide=True),
    ),
)


def service_state(service: ServiceStatus) -> str:
    state = enum_name(ServiceState, service.state)
    return "-" if state == "UNSPECIFIED" else state


SERVICES = View(
    key="services",
    name=lambda service: service.name,
    empty="none.services",
    columns=(
        Column("service", lambda s, now: s.name),
        Column("rank", lambda s, now: str(s.rank), right=True),
        Column("type", lambda s, now: s.type),
        Column("port", lambda s, now: str(s.port or "-"), right=True),
        Column("status", lambda s, now: service_state(s), style=lambda w: _STATES.get(w, "yellow")),
        Column("starts", lambda s, now: str(s.starts), right=True),
        Column("url", lambda s, now: s.url or "-", folds=True),
        Column("message", lambda s, now: s.message or "-", folds=True),
    ),
)


def lifetime_sentences(container: Container) -> list[str]:
    """Return sentences that say when the container ends."""
    sentences = []
    if container.HasField("ends_at"):
        sentences.append(text("container.ends", time=local(container.ends_at)))
    if container.HasField("idle_seconds"):
        sentences.append(text("container.idle", span=span(container.idle_seconds)))
    if container.notice:
        until = local(container.notice_until)
        sentences.append(text("container.leaves", until=until, notice=container.notice))
    return sentences


PORTS = View(
    key="ports",
    name=lambda port: str(port.node_port),
    empty="none.ports",
    columns=(
        Column("port", lambda p, now: str(p.node_port), right=True),
        Column("user", lambda p, now: p.user),
        Column("task", lambda p, now: p.task_name, folds=True),
        Column("service", lambda p, now: p.service),
        Column("created", lambda p, now: local(p.create_time), wide=True),
    ),
)
