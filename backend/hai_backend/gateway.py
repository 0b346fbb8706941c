"""Where the server listens, where others reach it, and how it reaches the server that leads."""

from __future__ import annotations

import socket
from pathlib import Path

import grpc
from grpc import aio

from hai_backend.config import Settings
from hai_backend.domain.errors import Unavailable
from hai_backend.home import last_port
from hai_backend.services.forwarding import Elsewhere
from hai_backend.services.server import LOOPBACK, Endpoint, Listening, build_server

_EVERYWHERE = ("0.0.0.0", "[::]", "")


def open_gateway(settings: Settings, switchboard: aio.ServerInterceptor) -> Listening:
    """Hold the port. Port 0 means that of the last start, so that agents and profiles find the server again.

    Raises Invalid for bad settings, Unavailable when the address is taken.
    """
    host, _, port = settings.listen.rpartition(":")
    last = last_port(settings.home) if port == "0" else ""
    if last:
        try:
            return build_server(_endpoint(settings, f"{host}:{last}"), switchboard)
        except Unavailable:
            pass  # another program has taken it meanwhile: any free one will do
    return build_server(_endpoint(settings, settings.listen), switchboard)


def _endpoint(settings: Settings, address: str) -> Endpoint:
    return Endpoint(address, settings.tls_cert, settings.tls_key, settings.insecure)


def advertised(settings: Settings, listening: str) -> str:
    """Where others reach the server that listens at this address."""
    host, _, port = listening.rpartition(":")
    wanted = settings.advertise or (socket.gethostname() if host in _EVERYWHERE else host)
    return wanted if wanted.rpartition(":")[2].isdecimal() else f"{wanted}:{port}"


def told_to_agents(settings: Settings, own: str) -> str:
    """The addresses that agents try in turn: the leader's own first."""
    others = (address.strip() for address in settings.servers.split(","))
    return ",".join(dict.fromkeys([own, *filter(None, others)]))


def way_to(leader: str, settings: Settings) -> Elsewhere | None:
    """The way to the server that leads; None where tokens would travel in plain text between machines."""
    if settings.authority:
        roots = Path(settings.authority).read_bytes()
        return Elsewhere(leader, grpc.ssl_channel_credentials(roots))
    if settings.insecure or leader.startswith(LOOPBACK):
        return Elsewhere(leader, None)
    return None
