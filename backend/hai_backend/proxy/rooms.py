"""What the proxy stands on."""

from __future__ import annotations

from dataclasses import dataclass

from hai_backend.loops.service_board import ServiceBoard
from hai_backend.loops.tunnels import Tunnels
from hai_backend.proxy.addresses import Addresses
from hai_backend.proxy.sessions import Sessions
from hai_backend.proxy.standing import Standing
from hai_backend.services.ports import Ledger
from hai_backend.services.task_access import TaskAccess


@dataclass(frozen=True, slots=True)
class Rooms:
    """See server.py."""

    addresses: Addresses
    sessions: Sessions
    standing: Standing
    access: TaskAccess
    ledger: Ledger
    tunnels: Tunnels
    board: ServiceBoard
