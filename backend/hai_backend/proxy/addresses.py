"""Which address belongs to which service of which task, both ways. Pure.

Each task has an origin of its own (t12.localhost, tensorboard-t12.example.org), so that pages of one cannot touch those
of another. Without a wildcard name all are below one origin, told apart by path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

OURS = ".hai"  # first part of paths that the proxy answers itself
_LABEL = re.compile(r"(?:([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)-)?t([1-9][0-9]{0,17})")
_PATH = re.compile(r"/t/([1-9][0-9]{0,17})/([a-z0-9-]{1,63}|\.hai)(/.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """What a request is about. `service` empty: the main one. `path` is what lies behind the public prefix."""

    task_id: int
    service: str
    path: str
    prefix: str  # public path before it; ends in no slash
    ours: bool = False  # for the proxy itself


@dataclass(frozen=True, slots=True)
class Addresses:
    """As browsers see them. `port` is empty where it is the scheme's own."""

    scheme: str
    domain: str
    port: str
    by_path: bool = False

    @property
    def secure(self) -> bool:
        return self.scheme == "https"

    def origin(self, task_id: int, service: str) -> str:
        """Scheme, host and port of a service. Empty name: the main one."""
        label = f"{service}-t{task_id}" if service else f"t{task_id}"
        host = self.domain if self.by_path else f"{label}.{self.domain}"
        return f"{self.scheme}://{host}{self.port}"

    def url(self, task_id: int, service: str) -> str:
        """Where browsers find a service."""
        return f"{self.origin(task_id, service)}{self.base_url(task_id, service)}"

    def base_url(self, task_id: int, service: str) -> str:
        """The path under which a service is; the service must know it."""
        return f"/t/{task_id}/{service or MAIN}/" if self.by_path else "/"

    def place(self, host: str, path: str) -> Place | None:
        """What a request to this host (the header, perhaps with a port) and path is about; None: nothing."""
        name = _name(host)
        if self.by_path:
            return _by_path(path) if name == self.domain else None
        label, dot, domain = name.partition(".")
        match = _LABEL.fullmatch(label)
        if not dot or domain != self.domain or match is None or not path.startswith("/"):
            return None
        ours = path.startswith(f"/{OURS}/")
        return Place(int(match[2]), match[1] or "", path, "", ours)

    def cookie_path(self, task_id: int) -> str:
        """Where browsers send the cookie of a session."""
        return f"/t/{task_id}/" if self.by_path else "/"


MAIN = "main"
"""Stands for the main service in paths; in origins it has no name."""


def _by_path(path: str) -> Place | None:
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    word, rest = match[2], match[3] or ""
    task_id, prefix = int(match[1]), f"/t/{match[1]}/{word}"
    if word == OURS:
        return Place(task_id, "", f"/{OURS}{rest}", f"/t/{task_id}", ours=True)
    return Place(task_id, "" if word == MAIN else word, rest, prefix)


def _name(host: str) -> str:
    """Without the port, in small letters; what is no plain name matches nothing."""
    name, colon, port = host.rpartition(":")
    if colon and port.isdecimal():
        host = name
    return host.lower()


def addresses_of(url: str, by_path: bool, listening: str, secure: bool) -> Addresses:
    """From the settings; without `url`, as the server listens: browsers resolve *.localhost by themselves."""
    if url:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        host = parts.hostname or "localhost"
        return Addresses(parts.scheme, f"[{host}]" if ":" in host else host, port, by_path)
    scheme = "https" if secure else "http"
    return Addresses(scheme, "localhost", f":{listening.rpartition(':')[2]}", by_path)
