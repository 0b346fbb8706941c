"""Handlers of dev containers.

A link that opens one is valid once and only for the user of this page, so it may pass through the page; no token does.
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
from hai_jupyter.proto_json import to_json_value

ACTIONS = "start|stop|restart"
_TEXT, _NUMBER = ((str,), "a text"), ((int, float), "a number")
_TYPES = {"str": _TEXT, "str | None": _TEXT, "int": ((int,), "a whole number"), "float": _NUMBER}
_FIELDS = {
    field.name: _TYPES[str(field.type)]
    for field in fields(ContainerOptions)
    if field.type in _TYPES
}


class ContainersHandler(Handler):
    """Creates dev containers."""

    @answers
    async def post(self) -> Any:
        spec = await container_spec(self.client.nodes, container_options(self.body()))
        return task_row(await self.client.tasks.create(spec))


class ContainerHandler(Handler):
    """One dev container."""

    @answers
    async def get(self, id: str) -> Any:
        """Its services and expiry."""
        return to_json_value(await self.client.containers.get(int(id)))

    @answers
    async def delete(self, id: str) -> Any:
        """Deletes it with its files."""
        await self.client.containers.delete(int(id))
        return {}


class OpenHandler(Handler):
    """Opens a service."""

    @answers
    async def post(self, id: str) -> Any:
        """A link that is valid once, for a minute."""
        service = self.body().get("service", "")
        if not isinstance(service, str):
            raise invalid(("service", "must be a text"))
        answer = await self.client.containers.open(int(id), service)
        return {"link": answer.link, "url": answer.url}


class RenewHandler(Handler):
    """Extends the lifetime."""

    @answers
    async def post(self, id: str) -> Any:
        return to_json_value(await self.client.containers.renew(int(id)))


class ServiceHandler(Handler):
    """One service."""

    @answers
    async def post(self, id: str, service: str, action: str) -> Any:
        """Starts, stops or restarts a service; returns the container."""
        requested = ServiceAction.Value(f"SERVICE_ACTION_{action.upper()}")
        return to_json_value(await self.client.containers.control(int(id), service, requested))


def container_options(data: Mapping[str, Any]) -> ContainerOptions:
    """Validates a request; reports all errors at once."""
    wrong = [(key, "is not known") for key in data if key not in _FIELDS]
    wrong += [
        (key, f"must be {expected_type}")
        for key, (kinds, expected_type) in _FIELDS.items()
        if key in data and (not isinstance(data[key], kinds) or isinstance(data[key], bool))
    ]
    if data.get("kind") not in (None, *KINDS):
        wrong.append(("kind", f"must be one of {', '.join(KINDS)}"))
    if wrong:
        raise invalid(*wrong)
    return ContainerOptions(**data)
