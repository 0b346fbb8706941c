"""What a registry wants to see: the WWW-Authenticate header of its 401. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SCHEME = re.compile(r"\s*(Basic|Bearer)\b", re.IGNORECASE)
_PARAMETER = re.compile(r'([A-Za-z_]+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Challenge:
    """`realm` is where tokens are made, for Bearer."""

    bearer: bool
    realm: str = ""
    service: str = ""
    scope: str = ""


def parse(header: str) -> Challenge | None:
    """The challenge in a header; None when it is of a kind that we do not know."""
    scheme = _SCHEME.match(header)
    if scheme is None:
        return None
    told = {key.lower(): value for key, value in _PARAMETER.findall(header)}
    bearer = scheme[1].lower() == "bearer"
    if bearer and not told.get("realm"):
        return None
    return Challenge(bearer, told.get("realm", ""), told.get("service", ""), told.get("scope", ""))
