"""Validates the values of settings, so that errors name the setting and appear at start."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hai_backend.domain.accounts.user import USER_NAME, USER_RULE
from hai_backend.domain.errors import Violation

_ANY = math.inf
_PORT = (0, 65_535)
_RANGES: Mapping[str, tuple[float, float]] = {
    "nodes": (0, 10_000),
    "gpus_per_node": (0, 1024),
    "default_quota": (-1, _ANY),
    "resync_seconds": (0.1, 3600),
    "log_bytes_per_rank": (1 << 20, _ANY),  # room for several log chunks of an agent
    "metrics_port": _PORT,
    "node_ports_from": _PORT,
    "node_ports_to": _PORT,
    "staging_bytes": (0, _ANY),
    "environment_copies_bytes": (0, _ANY),
    "workspace_bytes": (0, _ANY),
    "workspace_days": (0, _ANY),
    "containers_per_user": (0, _ANY),
    "build_within": (0, 86_400),
    "save_within_max": (0, 3600),
    "agent_heartbeat": (0.05, 60),
}
_ADDRESSES = ("listen", "http_listen")
_HOST = r"(\[[0-9a-fA-F:.]+\]|[^\[\]:/,\s]+)"
_ADDRESS = re.compile(_HOST + ":([0-9]{1,5})")
_URL = re.compile(rf"https?://{_HOST}(:[0-9]{{1,5}})?/?")
_GROUP = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")  # as labels of Kubernetes
_CONTAINER_KINDS = ("shared", "dedicated", "spot")


def violations(settings: Any) -> Iterator[Violation]:
    """Yield the violations of settings whose types are valid."""
    for key, (least, most) in _RANGES.items():
        value = getattr(settings, key)
        if not least <= value <= most:
            top = f" to {most:g}" if most < _ANY else " or more"
            yield Violation(key, f"must be {least:g}{top}, not {value!r}")
    for key in _ADDRESSES:
        value = getattr(settings, key)
        if value and not _is_address(value):
            yield Violation(key, f"must be HOST:PORT, not {value!r}")
    yield from _address_violations(settings)
    if settings.admin and not USER_NAME.fullmatch(settings.admin):
        yield Violation("admin", f"must be {USER_RULE}, not {settings.admin!r}")
    for group in settings.groups:
        if not _GROUP.fullmatch(group):
            message = "must be at most 63 letters, digits, `.`, `_` and `-`, no sign first or last"
            yield Violation(f"groups.{group}", message)
    for kind in settings.lifetimes:
        if kind not in _CONTAINER_KINDS:
            kinds = ", ".join(_CONTAINER_KINDS)
            yield Violation(f"lifetimes.{kind}", f"is no kind of dev container: {kinds}")
    if settings.node_ports_from > settings.node_ports_to:
        yield Violation(
            "node_ports_from", f"is larger than node_ports_to, {settings.node_ports_to}"
        )


def _address_violations(settings: Any) -> Iterator[Violation]:
    """Yield the violations of addresses at which clients and other servers reach this server."""
    advertised = settings.advertise
    if advertised and not (re.fullmatch(_HOST, advertised) or _is_address(advertised)):
        yield Violation("advertise", f"must be HOST or HOST:PORT, not {advertised!r}")
    for address in filter(None, map(str.strip, settings.servers.split(","))):
        if not _is_address(address):
            yield Violation("servers", f"must be HOST:PORT, separated by commas, not {address!r}")
    for origin in filter(None, map(str.strip, settings.webhooks.split(","))):
        if not _URL.fullmatch(origin):
            yield Violation(
                "webhooks", f"must be https://HOST, separated by commas, not {origin!r}"
            )
    if settings.http_url and not _URL.fullmatch(settings.http_url):
        yield Violation("http_url", f"must be https://HOST, not {settings.http_url!r}")


def _is_address(value: str) -> bool:
    found = _ADDRESS.fullmatch(value)
    return found is not None and int(found[2]) <= _PORT[1]
