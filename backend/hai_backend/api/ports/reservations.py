"""Reserves ports of the nodes for services. A right limits how many ports a user has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from hai.v1 import port_pb2
from hai_backend.api.request import limits
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.api.request.field_checks import LABEL, FieldViolations
from hai_backend.auth.directory import Directory
from hai_backend.auth.permissions import Identity
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.accounts.right import Right
from hai_backend.domain.catalog.port import Port
from hai_backend.domain.errors import Conflict, Denied, Exhausted, NotFound
from hai_backend.store.base import Store

_SERVICE_RULE = "at most 63 of a-z, 0-9 and -, as in the task's services"


class NodePorts:
    """The reserved ports. `usable_numbers` are the numbers that the cluster provides for services."""

    def __init__(
        self, store: Store, directory: Directory, clock: Clock, usable_numbers: range
    ) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._usable_numbers = usable_numbers
        self._write_lock = asyncio.Lock()

    async def list_for(self, user: str) -> list[Port]:
        """Return the ports of a user, or of all users for `*`, by number."""
        return [p for p in await self._store.records(Port) if user in ("*", p.user)]

    async def create(self, identity: Identity, message: port_pb2.Port) -> Port:
        """Reserve a port. Raises Invalid, Denied, Conflict or Exhausted."""
        user = message.user or identity.name
        if (message.node_port or user != identity.name) and not identity.operates:
            raise Denied("only operators may choose a number or reserve ports for others")
        _check_names(message.task_name, message.service)
        self._directory.user(user)
        async with self._write_lock:
            reserved = await self._store.records(Port)
            self._check_limit(identity, [p for p in reserved if p.user == user])
            new = Port(0, user, message.task_name, message.service, self._clock.now())
            _require_free_service(new, reserved)
            new = replace(new, node_port=self._choose_number(message.node_port, reserved))
            await self._store.save_record(new)
        return new

    async def bind(self, identity: Identity, number: int, task_name: str, service: str) -> Port:
        """Bind a port to another task name or service of its user. Raises Invalid, NotFound or Conflict."""
        _check_names(task_name, service)
        async with self._write_lock:
            bound = replace(
                await self._get_owned(identity, number), task_name=task_name, service=service
            )
            others = [p for p in await self._store.records(Port) if p.node_port != number]
            _require_free_service(bound, others)
            await self._store.save_record(bound)
        return bound

    async def delete(self, identity: Identity, number: int) -> None:
        """Release a port. Raises NotFound."""
        async with self._write_lock:
            await self._store.delete_record(await self._get_owned(identity, number))

    async def _get_owned(self, identity: Identity, number: int) -> Port:
        for port in await self._store.records(Port, node_port=number):
            if identity.operates or port.user == identity.name:
                return port
        raise NotFound(f"port {number} not found; `hai port list` shows yours")

    def _check_limit(self, identity: Identity, reserved: Sequence[Port]) -> None:
        limit = max(map(int, identity.arguments(Right.PORTS)), default=0)
        if not identity.operates and len(reserved) >= limit:
            raise Exhausted(
                f"{identity.name} has {len(reserved)} ports, and {limit} is the limit; delete one, "
                f"or ask an admin for `hai right grant {identity.name} ports:{len(reserved) + 1}`",
                reason="TOO_MANY_PORTS",
            )

    def _choose_number(self, requested: int, reserved: Sequence[Port]) -> int:
        by_number = {port.node_port: port for port in reserved}
        if requested and requested not in self._usable_numbers:
            violations, usable_numbers = FieldViolations(), self._usable_numbers
            violations.check_range(
                "port.node_port", requested, usable_numbers.start, usable_numbers.stop - 1
            )
            violations.raise_if_any()
        if requested in by_number:
            raise Conflict(
                f"port {requested} is already reserved for {by_number[requested].user}",
                reason="NAME_TAKEN",
            )
        free = requested or next((n for n in self._usable_numbers if n not in by_number), 0)
        if not free:
            raise Exhausted("all ports of the nodes are reserved; delete some")
        return free


def _check_names(task_name: str, service: str) -> None:
    violations = FieldViolations()
    if not task_name.strip():
        violations.add("port.task_name", "is required")
    violations.check_line("port.task_name", task_name, limits.NAME_CHARS)
    violations.check_pattern("port.service", service, LABEL, _SERVICE_RULE)
    violations.raise_if_any()


def _require_free_service(port: Port, others: Sequence[Port]) -> None:
    for other in others:
        if replace(other, node_port=0, created_at=0) == replace(port, node_port=0, created_at=0):
            raise Conflict(
                f"service {port.service} of {port.user}'s task {port.task_name!r} has port "
                f"{other.node_port} already",
                reason="NAME_TAKEN",
            )


def port_to_proto(port: Port) -> port_pb2.Port:
    return port_pb2.Port(
        node_port=port.node_port,
        user=port.user,
        task_name=port.task_name,
        service=port.service,
        create_time=to_timestamp(port.created_at or None),
    )
