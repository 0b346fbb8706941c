"""Maps public addresses to services of tasks, and back. Pure.

Each task has its own origins (t12.localhost, tensorboard-t12.example.org), so that its pages cannot access those of
another task. Without a wildcard domain, all tasks share one origin and are distinguished by path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

PROXY_PREFIX = ".hai"  # first segment of paths that the proxy itself serves
_LABEL = re.compile(r"(?:([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)-)?t([1-9][0-9]{0,17})")
_PATH = re.compile(r"/t/([1-9][0-9]{0,17})/([a-z0-9-]{1,63}|\.hai)(/.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a request."""

    task_id: int
    service: str  # empty for the main service
    path: str  # the part after the prefix
    prefix: str  # the part of the public path that identifies the service, without a trailing slash
    for_proxy: bool = False  # served by the proxy itself


@dataclass(frozen=True, slots=True)
class Addresses:
    """The public addresses. `port` is empty for the default port of the scheme."""

    scheme: str
    domain: str
    port: str
    by_path: bool = False

    @property
    def secure(self) -> bool:
        return self.scheme == "https"

    def origin(self, task_id: int, service: str) -> str:
        """Return scheme, host and port of a service. An empty name means the main service."""
        label = f"{service}-t{task_id}" if service else f"t{task_id}"
        host = self.domain if self.by_path else f"{label}.{self.domain}"
        return f"{self.scheme}://{host}{self.port}"

    def url(self, task_id: int, service: str) -> str:
        return f"{self.origin(task_id, service)}{self.base_url(task_id, service)}"

    def base_url(self, task_id: int, service: str) -> str:
        """Return the base path of a service, which the service must know."""
        return f"/t/{task_id}/{service or MAIN_SERVICE}/" if self.by_path else "/"

    def parse(self, host: str, path: str) -> Target | None:
        """Parse the Host header and path of a request. Return None if they have no target."""
        name = _host_name(host)
        if self.by_path:
            return _parse_path(path) if name == self.domain else None
        label, dot, domain = name.partition(".")
        match = _LABEL.fullmatch(label)
        if not dot or domain != self.domain or match is None or not path.startswith("/"):
            return None
        for_proxy = path.startswith(f"/{PROXY_PREFIX}/")
        return Target(int(match[2]), match[1] or "", path, "", for_proxy)

    def cookie_path(self, task_id: int) -> str:
        """Return the path to which browsers send the cookie of a session."""
        return f"/t/{task_id}/" if self.by_path else "/"


MAIN_SERVICE = "main"
"""The name of the main service in paths. In origins it has no name."""


def _parse_path(path: str) -> Target | None:
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    service_part, remaining_path = match[2], match[3] or ""
    task_id, prefix = int(match[1]), f"/t/{match[1]}/{service_part}"
    if service_part == PROXY_PREFIX:
        return Target(
            task_id, "", f"/{PROXY_PREFIX}{remaining_path}", f"/t/{task_id}", for_proxy=True
        )
    return Target(
        task_id, "" if service_part == MAIN_SERVICE else service_part, remaining_path, prefix
    )


def _host_name(host: str) -> str:
    """Return the host without its port, in lower case."""
    name, colon, port = host.rpartition(":")
    if colon and port.isdecimal():
        host = name
    return host.lower()


def addresses_of(url: str, by_path: bool, listening: str, secure: bool) -> Addresses:
    """Derive the addresses from the settings, or from the listening address, because browsers resolve *.localhost."""
    if url:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        host = parts.hostname or "localhost"
        return Addresses(parts.scheme, f"[{host}]" if ":" in host else host, port, by_path)
    scheme = "https" if secure else "http"
    return Addresses(scheme, "localhost", f":{listening.rpartition(':')[2]}", by_path)
