"""Where the server listens: the address of the settings, or the one of its last start."""

from __future__ import annotations

import json
from pathlib import Path

from hai_backend.config import Settings
from hai_backend.domain.errors import Unavailable
from hai_backend.services.assemble import Parts, serve
from hai_backend.services.server import Endpoint, Listening


async def open_gateway(settings: Settings, parts: Parts) -> Listening:
    """Listen and answer. Port 0 means the port of the last start, so that agents and profiles find the server again.

    Raises Invalid for bad settings, Unavailable when the address is taken.
    """
    host, _, port = settings.listen.rpartition(":")
    last = last_port(settings.home) if port == "0" else ""
    if last:
        try:
            return await serve(parts, _endpoint(settings, f"{host}:{last}"))
        except Unavailable:
            pass  # another program has taken it meanwhile: any free one will do
    return await serve(parts, _endpoint(settings, settings.listen))


def _endpoint(settings: Settings, address: str) -> Endpoint:
    return Endpoint(address, settings.tls_cert, settings.tls_key, settings.insecure)


def last_port(home: Path) -> str:
    """The port of the last start; empty when there was none."""
    try:
        return str(json.loads((home / "port.json").read_text()))
    except (OSError, ValueError):
        return ""
