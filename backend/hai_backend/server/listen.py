"""Where the server listens, where others reach it, and how it reaches the server that leads."""

from __future__ import annotations

import socket
from functools import partial

import grpc
from grpc import aio

from hai_backend.api.server.certificates import Certificates
from hai_backend.api.server.forwarding import LeaderRoute
from hai_backend.api.server.server import LOOPBACK_PREFIXES, ApiServer, Endpoint, build_server
from hai_backend.config import Settings
from hai_backend.domain.errors import Invalid, Unavailable, Violation
from hai_backend.proxy.addresses import Addresses, addresses_of
from hai_backend.proxy.listener import Listener, Receive, forward_to, refuse
from hai_backend.server.paths import HTTP_PORT, last_port

_EVERYWHERE = ("0.0.0.0", "[::]", "")


def certificates_of(settings: Settings) -> Certificates | None:
    """None: it speaks plaintext. Raises Invalid."""
    if bool(settings.tls_cert) != bool(settings.tls_key):
        message = "a certificate needs a key and the other way round; set both or none"
        raise Invalid((Violation("tls", message),), reason="BAD_SETTINGS")
    if not settings.tls_cert:
        return None
    return Certificates(settings.tls_cert, settings.tls_key, settings.authority)


def open_gateway(
    settings: Settings, certificates: Certificates | None, router: aio.ServerInterceptor
) -> ApiServer:
    """Hold the port. Port 0 means that of the last start, so that agents and profiles find the server again.

    Raises Invalid for bad settings, Unavailable when the address is taken.
    """
    endpoint = partial(Endpoint, certificates=certificates, insecure=settings.insecure)
    host, _, port = settings.listen.rpartition(":")
    last = last_port(settings.home) if port == "0" else ""
    if last:
        try:
            return build_server(endpoint(f"{host}:{last}"), router)
        except Unavailable:
            pass  # another program has taken it meanwhile: any free one will do
    return build_server(endpoint(settings.listen), router)


def open_door(settings: Settings) -> Listener | None:
    """Hold the port for browsers, in the same way. Raises Invalid or Unavailable; None: browsers are not served."""
    if not settings.http_listen:
        return None
    host, _, port = settings.http_listen.rpartition(":")
    if (
        not settings.tls_cert
        and not settings.insecure
        and not f"{host}:".startswith(LOOPBACK_PREFIXES)
    ):
        message = f"{settings.http_listen} can be reached from other machines; set tls_cert and tls_key, or insecure"
        raise Invalid((Violation("http_listen", message),), reason="BAD_SETTINGS")
    last = last_port(settings.home, HTTP_PORT) if port == "0" else ""
    if last:
        try:
            return Listener(host, int(last))
        except Unavailable:
            pass  # as above
    return Listener(host, int(port))


def addresses(settings: Settings, door: Listener) -> Addresses:
    """How browsers see services of tasks."""
    secure = bool(settings.tls_cert)
    return addresses_of(settings.http_url, settings.http_paths, door.address, secure)


def way_of_browsers(leader: str, settings: Settings) -> Receive:
    """To the door of the server that leads: the same port on its machine."""
    own, _, port = settings.http_listen.rpartition(":")
    if not int(port or 0):
        return refuse
    return forward_to(leader.rpartition(":")[0].strip("[]"), int(port), own)


def advertised(settings: Settings, listening: str) -> str:
    """Where others reach the server that listens at this address."""
    host, _, port = listening.rpartition(":")
    wanted = settings.advertise or (socket.gethostname() if host in _EVERYWHERE else host)
    return wanted if wanted.rpartition(":")[2].isdecimal() else f"{wanted}:{port}"


def told_to_agents(settings: Settings, own: str) -> str:
    """The addresses that agents try in turn: the leader's own first."""
    others = (address.strip() for address in settings.servers.split(","))
    return ",".join(dict.fromkeys([own, *filter(None, others)]))


def way_to(
    leader: str, settings: Settings, certificates: Certificates | None
) -> LeaderRoute | None:
    """The way to the server that leads; None where tokens would travel in plain text between machines."""
    if certificates is not None:
        return LeaderRoute(leader, grpc.ssl_channel_credentials(certificates.trusted))
    if settings.insecure or leader.startswith(LOOPBACK_PREFIXES):
        return LeaderRoute(leader, None)
    return None
