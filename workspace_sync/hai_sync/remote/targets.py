"""Tells which absolute paths exist for tasks: on this machine if tasks run here, else on mounted storage."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

from hai.client.connection.transport import Connection, on_loopback
from hai.client.resources.server import Server
from hai.client.resources.storage import Storage
from hai_sync.core.entry import below


async def existing_targets(connection: Connection, targets: Iterable[str]) -> set[str]:
    """The targets that exist on the cluster, as far as can be known here. Raises HaiError."""
    absolute = {target for target in targets if target.startswith("/")}
    if not absolute:
        return set()
    server = await Server(connection).info()
    if server.launcher == "process" and on_loopback(connection.profile.server):
        return await asyncio.to_thread(lambda: set(filter(os.path.exists, absolute)))
    mounts = [mount.mount_path for mount in (await Storage(connection).mounts()).mounts]
    return {target for target in absolute if any(below(target, path) for path in mounts)}
