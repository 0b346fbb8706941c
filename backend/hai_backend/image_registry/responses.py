"""Parses responses of registries: login challenges and JSON bodies. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from hai_backend.domain.errors import Unavailable

_SCHEME = re.compile(r"\s*(Basic|Bearer)\b", re.IGNORECASE)
_PARAMETER = re.compile(r'([A-Za-z_]+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Challenge:
    """A WWW-Authenticate header. `realm` is the URL of the token service, for Bearer."""

    bearer: bool
    realm: str = ""
    service: str = ""
    scope: str = ""


def parse_challenge(header: str) -> Challenge | None:
    """Parse a header. Return None if the scheme is unknown."""
    scheme = _SCHEME.match(header)
    if scheme is None:
        return None
    parameters = {key.lower(): value for key, value in _PARAMETER.findall(header)}
    bearer = scheme[1].lower() == "bearer"
    if bearer and not parameters.get("realm"):
        return None
    return Challenge(
        bearer,
        parameters.get("realm", ""),
        parameters.get("service", ""),
        parameters.get("scope", ""),
    )


def read_json(host: str, body: bytes) -> dict[str, Any]:
    """Parse the JSON object of a response. Raises Unavailable."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        raise unavailable(host, "returned a response that is not JSON") from None
    return parsed if isinstance(parsed, dict) else {}


def unavailable(host: str, problem: str) -> Unavailable:
    return Unavailable(f"registry {host} {problem}", reason="REGISTRY_DOWN")
