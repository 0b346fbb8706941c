"""Dev containers: what one has beside being a task, and what can be done with it.

A link that opens one is good once and for this page's user only, so it may pass through the page; no token does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from hai.client.tasks.container_spec import KINDS, ContainerOptions, container_spec
from hai.v1.container_pb2 import ServiceAction
from hai_jupyter.errors import invalid
from hai_jupyter.handlers.base import Handler, answers
from hai_jupyter.live.rows import task_row
from hai_jupyter.proto_json import plain

ACTIONS = "start|stop|restart"
_TEXT, _NUMBER = ((str,), "a text"), ((int, float), "a number")
_TYPES = {"str": _TEXT, "str | None": _TEXT, "int": ((int,), "a whole number"), "float": _NUMBER}
_SAID = {
    field.name: _TYPES[str(field.type)]
    for field in fields(ContainerOptions)
    if field.type in _TYPES
}


class ContainersHandler(Handler):
    """A new one."""

    @answers
    async def post(self) -> Any:
        """The task."""
        spec = await container_spec(self.client.nodes, container_options(self.body()))
        return task_row(await self.client.tasks.create(spec))


class ContainerHandler(Handler):
    """One."""

    @answers
    async def get(self, id: str) -> Any:
        """Its services, and how long it may stay."""
        return plain(await self.client.containers.get(int(id)))

    @answers
    async def delete(self, id: str) -> Any:
        """End it for good, with its files."""
        await self.client.containers.delete(int(id))
        return {}


class OpenHandler(Handler):
    """The way in."""

    @answers
    async def post(self, id: str) -> Any:
        """A link that is good once, for a minute."""
        service = self.body().get("service", "")
        if not isinstance(service, str):
            raise invalid(("service", "must be a text"))
        answer = await self.client.containers.open(int(id), service)
        return {"link": answer.link, "url": answer.url}


class RenewHandler(Handler):
    """More time."""

    @answers
    async def post(self, id: str) -> Any:
        """As it is then."""
        return plain(await self.client.containers.renew(int(id)))


class ServiceHandler(Handler):
    """One service."""

    @answers
    async def post(self, id: str, service: str, action: str) -> Any:
        """Start, stop or restart it; the container as it is then."""
        wanted = ServiceAction.Value(f"SERVICE_ACTION_{action.upper()}")
        return plain(await self.client.containers.control(int(id), service, wanted))


def container_options(said: Mapping[str, Any]) -> ContainerOptions:
    """From what the page sent, with every mistake named at once."""
    wrong = [(key, "is not known") for key in said if key not in _SAID]
    wrong += [
        (key, f"must be {what}")
        for key, (kinds, what) in _SAID.items()
        if key in said and (not isinstance(said[key], kinds) or isinstance(said[key], bool))
    ]
    if said.get("kind") not in (None, *KINDS):
        wrong.append(("kind", f"must be one of {', '.join(KINDS)}"))
    if wrong:
        raise invalid(*wrong)
    return ContainerOptions(**said)
