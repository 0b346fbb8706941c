"""Handlers of dev containers.

A link that opens a container is valid once and only for the user of this page, so the page may see it. The page never
sees a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from hai.client.tasks.container_spec import KINDS, ContainerOptions, container_spec
from hai.v1.container_pb2 import ServiceAction
from hai_jupyter.errors import invalid
from hai_jupyter.handlers.base import Handler, answers, to_json_value
from hai_jupyter.live.rows import task_row

ACTIONS = "start|stop|restart"
_TEXT, _NUMBER = ((str,), "a text"), ((int, float), "a number")
_TYPES = {"str": _TEXT, "str | None": _TEXT, "int": ((int,), "a whole number"), "float": _NUMBER}
_FIELDS = {
    field.name: _TYPES[str(field.type)]
    for field in fields(ContainerOptions)
    if field.type in _TYPES
}


class ContainersHandler(Handler):
    """Dev containers."""

    @answers
    async def post(self) -> Any:
        spec = await container_spec(self.client.nodes, container_options(self.body()))
        return task_row(await self.client.tasks.create(spec))


class ContainerHandler(Handler):
    """One dev container."""

    @answers
    async def get(self, id: str) -> Any:
        """Return services and expiry."""
        return to_json_value(await self.client.containers.get(int(id)))

    @answers
    async def delete(self, id: str) -> Any:
        """Delete the container with its files."""
        await self.client.containers.delete(int(id))
        return {}


class OpenHandler(Handler):
    """The link to a service."""

    @answers
    async def post(self, id: str) -> Any:
        """Return a link that is valid once, for a minute."""
        service = self.body().get("service", "")
        if not isinstance(service, str):
            raise invalid(("service", "must be a text"))
        answer = await self.client.containers.open(int(id), service)
        return {"link": answer.link, "url": answer.url}


class RenewHandler(Handler):
    """The lifetime of a container."""

    @answers
    async def post(self, id: str) -> Any:
        return to_json_value(await self.client.containers.renew(int(id)))


class ServiceHandler(Handler):
    """One service of a container."""

    @answers
    async def post(self, id: str, service: str, action: str) -> Any:
        """Start, stop or restart the service; return the container."""
        requested = ServiceAction.Value(f"SERVICE_ACTION_{action.upper()}")
        return to_json_value(await self.client.containers.control(int(id), service, requested))


def container_options(data: Mapping[str, Any]) -> ContainerOptions:
    """Validate a request; report all faults at once."""
    faults = [(key, "is not known") for key in data if key not in _FIELDS]
    faults += [
        (key, f"must be {expected_type}")
        for key, (kinds, expected_type) in _FIELDS.items()
        if key in data and (not isinstance(data[key], kinds) or isinstance(data[key], bool))
    ]
    if data.get("kind") not in (None, *KINDS):
        faults.append(("kind", f"must be one of {', '.join(KINDS)}"))
    if faults:
        raise invalid(*faults)
    return ContainerOptions(**data)
