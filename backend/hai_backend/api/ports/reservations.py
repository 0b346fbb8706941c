"""Which ports of the nodes are kept for whom: at most so many as a right allows, each number and each service once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from hai.v1 import port_pb2
from hai_backend.api.request import limits
from hai_backend.api.request.convert_time import timestamp
from hai_backend.api.request.rules import LABEL, Rules
from hai_backend.auth.directory import Directory
from hai_backend.auth.permissions import Identity
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.accounts.right import Right
from hai_backend.domain.catalog.port import Port
from hai_backend.domain.errors import Conflict, Denied, Exhausted, NotFound
from hai_backend.store.base import Store

_SERVICE_RULE = "at most 63 of a-z, 0-9 and -, as in the task's services"


class NodePorts:
    """`usable` are the numbers that the cluster gives to services."""

    def __init__(self, store: Store, directory: Directory, clock: Clock, usable: range) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._usable = usable
        self._writing = asyncio.Lock()

    async def of(self, user: str) -> list[Port]:
        """Those of a user; `*`: all. By number."""
        return [p for p in await self._store.records(Port) if user in ("*", p.user)]

    async def create(self, identity: Identity, message: port_pb2.Port) -> Port:
        """A new one. Raises Invalid, Denied, Conflict or Exhausted."""
        user = message.user or identity.name
        if (message.node_port or user != identity.name) and not identity.operates:
            raise Denied("a number of one's own, and ports of others, are for operators only")
        _check(message.task_name, message.service)
        self._directory.user(user)
        async with self._writing:
            kept = await self._store.records(Port)
            self._require_room(identity, [p for p in kept if p.user == user])
            new = Port(0, user, message.task_name, message.service, self._clock.now())
            _require_free_service(new, kept)
            new = replace(new, node_port=self._number(message.node_port, kept))
            await self._store.save_record(new)
        return new

    async def bind(self, identity: Identity, number: int, task_name: str, service: str) -> Port:
        """Let one lead to another task name or service of its user. Raises Invalid, NotFound or Conflict."""
        _check(task_name, service)
        async with self._writing:
            bound = replace(await self._own(identity, number), task_name=task_name, service=service)
            others = [p for p in await self._store.records(Port) if p.node_port != number]
            _require_free_service(bound, others)
            await self._store.save_record(bound)
        return bound

    async def delete(self, identity: Identity, number: int) -> None:
        """Give one back. Raises NotFound."""
        async with self._writing:
            await self._store.delete_record(await self._own(identity, number))

    async def _own(self, identity: Identity, number: int) -> Port:
        for port in await self._store.records(Port, node_port=number):
            if identity.operates or port.user == identity.name:
                return port
        raise NotFound(f"there is no port {number}; `hai port list` shows yours")

    def _require_room(self, identity: Identity, kept: Sequence[Port]) -> None:
        most = max(map(int, identity.arguments(Right.PORTS)), default=0)
        if not identity.operates and len(kept) >= most:
            raise Exhausted(
                f"{identity.name} has {len(kept)} ports, and {most} is the limit; delete one, "
                f"or ask an admin for `hai right grant {identity.name} ports:{len(kept) + 1}`",
                reason="TOO_MANY_PORTS",
            )

    def _number(self, wanted: int, kept: Sequence[Port]) -> int:
        taken = {port.node_port: port for port in kept}
        if wanted and wanted not in self._usable:
            rules, usable = Rules(), self._usable
            rules.number("port.node_port", wanted, usable.start, usable.stop - 1)
            rules.check()
        if wanted in taken:
            raise Conflict(
                f"port {wanted} is kept for {taken[wanted].user} already", reason="NAME_TAKEN"
            )
        free = wanted or next((n for n in self._usable if n not in taken), 0)
        if not free:
            raise Exhausted("every port of the nodes is kept for somebody; delete some")
        return free


def _check(task_name: str, service: str) -> None:
    rules = Rules()
    if not task_name.strip():
        rules.add("port.task_name", "is required")
    rules.line("port.task_name", task_name, limits.NAME_CHARS)
    rules.matching("port.service", service, LABEL, _SERVICE_RULE)
    rules.check()


def _require_free_service(port: Port, others: Sequence[Port]) -> None:
    for other in others:
        if replace(other, node_port=0, created_at=0) == replace(port, node_port=0, created_at=0):
            raise Conflict(
                f"service {port.service} of {port.user}'s task {port.task_name!r} has port "
                f"{other.node_port} already",
                reason="NAME_TAKEN",
            )


def port_to_proto(port: Port) -> port_pb2.Port:
    """A port."""
    return port_pb2.Port(
        node_port=port.node_port,
        user=port.user,
        task_name=port.task_name,
        service=port.service,
        create_time=timestamp(port.created_at or None),
    )
