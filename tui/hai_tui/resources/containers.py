"""Dev containers, and the services that run beside the program of a task, such as JupyterLab and TensorBoard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from hai_tui.formatting.table import Column
from hai_tui.i18n import text
from hai_tui.resources.resource_spec import Answers, Field, ResourceSpec, Verb
from hai_tui.views.containers import CONTAINERS, SERVICES, lifetime_sentences

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.tasks.container_spec import ContainerOptions
    from hai.v1.container_pb2 import Container, ServiceStatus
    from hai.v1.container_service_pb2 import OpenContainerResponse
    from hai.v1.task_pb2 import Task

_KINDS = ("shared", "dedicated", "spot")
_MAX_CONTAINERS = 1000


async def _load(client: Client) -> Sequence[Task]:
    from hai.v1.task_service_pb2 import TASK_VIEW_FULL

    page = await client.tasks.list(
        filter="type:jupyter state:waiting_init,running,suspended",
        page_size=_MAX_CONTAINERS,
        view=TASK_VIEW_FULL,
    )
    return page.tasks


def _container_options(item: Any, answers: Answers) -> ContainerOptions:
    from hai.client.tasks.container_spec import ContainerOptions

    return ContainerOptions(
        name=answers.text("name") or "lab",
        kind=answers.choice("kind", ("", *_KINDS)) or None,
        gpu=answers.number("gpu"),
        cpu=answers.number("cpu"),
        memory=answers.number("memory"),
        group=answers.text("group"),
        image=answers.text("image"),
        py_venv=answers.text("py_venv"),
        lifetime=answers.span("lifetime"),
        idle_timeout=answers.span("idle_timeout"),
    )


async def _create(client: Client, options: ContainerOptions) -> Task:
    from hai.client.tasks.container_spec import container_spec

    return await client.tasks.create(await container_spec(client.nodes, options))


def _link_text(answer: OpenContainerResponse) -> str:
    return text("container.link", link=answer.link, url=answer.url)


def _open_verb(send: Callable[[Client, Any], Awaitable[OpenContainerResponse]]) -> Verb:
    return Verb(
        "o", "link", send, result_text=_link_text, clipboard_text=attrgetter("link"), writes=False
    )


def _requested_column(name: str) -> Column:
    return Column(
        name, lambda t, now: str(getattr(t.spec.resource, name) or "-"), wide=True, right=True
    )


CONTAINERS_PAGE = ResourceSpec(
    "containers",
    replace(CONTAINERS, name=lambda task: f"{task.id} {task.name}"),
    _load,
    (
        Verb(
            "a",
            "new",
            _create,
            _container_options,
            (
                Field("name", lambda item: "lab"),
                Field("kind", choices=_KINDS, violation="resource.is_spot"),
                Field("gpu"),
                Field("cpu"),
                Field("memory"),
                Field("group"),
                Field("image"),
                Field("py_venv"),
                Field("lifetime"),
                Field("idle_timeout"),
            ),
            new=True,
        ),
        _open_verb(lambda client, task: client.containers.open(task.id)),
        Verb("r", "start", lambda client, t: client.tasks.resume(t.id)),
        Verb(
            "x",
            "putaway",
            lambda client, t: client.tasks.suspend(t.id, hold=True),
            needs_confirmation=True,
        ),
        Verb("R", "renew", lambda client, t: client.containers.renew(t.id)),
        Verb(
            "ctrl+d",
            "erase",
            lambda client, t: client.containers.delete(t.id),
            word_to_type=lambda t: t.name,
        ),
    ),
    opens=lambda task: f"services {task.id}",
    extra_columns=tuple(_requested_column(name) for name in ("gpu", "cpu", "memory")),
    live=True,
)


@dataclass(slots=True)
class Services:
    """The services of one task, given by name or number; `id` and `container` are set when they are first loaded."""

    task: str
    id: int = 0
    container: Container | None = None

    def resource(self) -> ResourceSpec:
        """Return the services as a kind of resource."""
        return ResourceSpec(
            "services",
            SERVICES,
            self._load,
            (
                _open_verb(self._open),
                *(self._control_verb(key, name) for key, name in _CONTROLS),
            ),
            opens=lambda service: rf"logs {self.id} {service.rank} ^\[{service.name}\]",
            live=True,
        )

    @property
    def lifetime_text(self) -> str:
        """Return sentences about how long the container may stay; empty before it is loaded."""
        return " · ".join(lifetime_sentences(self.container)) if self.container is not None else ""

    async def _load(self, client: Client) -> Sequence[ServiceStatus]:
        self.id = self.id or await client.tasks.resolve(self.task)
        self.container = await client.containers.get(self.id)
        return self.container.services

    async def _open(self, client: Client, service: ServiceStatus) -> OpenContainerResponse:
        return await client.containers.open(self.id, service.name)

    def _control_verb(self, key: str, name: str) -> Verb:
        return Verb(
            key, name, partial(self._send_action, name.upper()), needs_confirmation=name == "stop"
        )

    async def _send_action(self, action: str, client: Client, service: ServiceStatus) -> Container:
        from hai.v1.container_pb2 import ServiceAction

        value = ServiceAction.Value(f"SERVICE_ACTION_{action}")
        return await client.containers.control(self.id, service.name, value, rank=service.rank)


_CONTROLS = (("r", "restart"), ("s", "start"), ("x", "stop"))
RESOURCES = (CONTAINERS_PAGE,)
