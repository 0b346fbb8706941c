"""The parts of the server that the proxy needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hai_backend.api.audit.rows import AddRows
from hai_backend.api.protocols import TaskManager
from hai_backend.api.tasks.access import TaskAccess
from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.cluster.service_status import ServiceStates
from hai_backend.controllers.cluster.tunnels import Tunnels
from hai_backend.proxy.addresses import Addresses
from hai_backend.proxy.pages.status_page import StatusPage
from hai_backend.proxy.sessions import Sessions


@dataclass(frozen=True, slots=True)
class ProxyDeps:
    addresses: Addresses
    sessions: Sessions
    status_page: StatusPage
    access: TaskAccess
    task_manager: TaskManager
    tunnels: Tunnels
    service_states: ServiceStates
    clock: Clock
    add_audit_rows: AddRows
    observe: Callable[[str, str, float], None]  # method, code, seconds
