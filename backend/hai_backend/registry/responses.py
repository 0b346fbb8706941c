"""What registries answer, and how it is told that one cannot be asked."""

from __future__ import annotations

import json
from typing import Any

from hai_backend.domain.errors import Unavailable


def read_json(host: str, body: bytes) -> dict[str, Any]:
    """The object in an answer. Raises Unavailable."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        raise down(host, "answers with something that is not JSON") from None
    return told if isinstance(told, dict) else {}


def down(host: str, why: str) -> Unavailable:
    """A registry that cannot be asked, or makes no sense."""
    return Unavailable(f"registry {host} {why}", reason="REGISTRY_DOWN")
