"""Opens the listeners of a server, and finds the addresses at which servers, agents and browsers reach it."""

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
from hai_backend.server.paths import HTTP_PORT_FILE, last_port

_ALL_INTERFACES = ("0.0.0.0", "[::]", "")


def read_certificates(settings: Settings) -> Certificates | None:
    """Read the certificates in the settings. Return None if the server does not use TLS. Raises Invalid."""
    if bool(settings.tls_cert) != bool(settings.tls_key):
        message = "a certificate needs a key and the other way round; set both or none"
        raise Invalid((Violation("tls", message),), reason="BAD_SETTINGS")
    if not settings.tls_cert:
        return None
    return Certificates(settings.tls_cert, settings.tls_key, settings.authority)


def open_grpc_listener(
    settings: Settings, certificates: Certificates | None, router: aio.ServerInterceptor
) -> ApiServer:
    """Bind the gRPC port. Port 0 means the port of the last start, so that agents and profiles find the server again.

    Raises Invalid for bad settings, and Unavailable if the address is in use.
    """
    endpoint = partial(Endpoint, certificates=certificates, insecure=settings.insecure)
    host, _, port = settings.listen.rpartition(":")
    last = last_port(settings.home) if port == "0" else ""
    if last:
        try:
            return build_server(endpoint(f"{host}:{last}"), router)
        except Unavailable:
            pass  # another program uses the port now; bind any free port
    return build_server(endpoint(settings.listen), router)


def open_http_listener(settings: Settings) -> Listener | None:
    """Bind the HTTP port for browsers. Return None if the settings have none. Port 0 means the port of the last start.

    Raises Invalid and Unavailable.
    """
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
    last = last_port(settings.home, HTTP_PORT_FILE) if port == "0" else ""
    if last:
        try:
            return Listener(host, int(last))
        except Unavailable:
            pass
    return Listener(host, int(port))


def service_addresses(settings: Settings, listener: Listener) -> Addresses:
    """Return the addresses at which browsers reach services of tasks."""
    secure = bool(settings.tls_cert)
    return addresses_of(settings.http_url, settings.http_paths, listener.address, secure)


def browser_forwarding(leader: str, settings: Settings) -> Receive:
    """Return a function that forwards connections of browsers to the leader.

    All servers must use the same HTTP port. The function refuses connections if the settings have no fixed port.
    """
    host, _, port = settings.http_listen.rpartition(":")
    if not int(port or 0):
        return refuse
    return forward_to(leader.rpartition(":")[0].strip("[]"), int(port), host)


def advertised_address(settings: Settings, listen_address: str) -> str:
    """Return the address at which other machines reach the server that listens at `listen_address`."""
    host, _, port = listen_address.rpartition(":")
    name = settings.advertise or (socket.gethostname() if host in _ALL_INTERFACES else host)
    return name if name.rpartition(":")[2].isdecimal() else f"{name}:{port}"


def agent_addresses(settings: Settings, leader: str) -> str:
    """Return the addresses that agents try in turn, beginning with the address of the leader."""
    others = (address.strip() for address in settings.servers.split(","))
    return ",".join(dict.fromkeys([leader, *filter(None, others)]))


def grpc_forwarding(
    leader: str, settings: Settings, certificates: Certificates | None
) -> LeaderRoute | None:
    """Return a forwarder of calls to the leader. Return None if it would send tokens unencrypted to another machine."""
    if certificates is not None:
        return LeaderRoute(leader, grpc.ssl_channel_credentials(certificates.trusted))
    if settings.insecure or leader.startswith(LOOPBACK_PREFIXES):
        return LeaderRoute(leader, None)
    return None
