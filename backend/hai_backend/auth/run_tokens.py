"""Run tokens: what an agent shows. Each is good for one rank of one run; none is stored."""

from __future__ import annotations

import hashlib
import hmac


def make(secret: bytes, task_id: int, run: int, rank: int) -> str:
    """The token of a rank."""
    return hmac.new(secret, f"{task_id}-{run}-{rank}".encode(), hashlib.sha256).hexdigest()


def matches(secret: bytes, task_id: int, run: int, rank: int, token: str) -> bool:
    """Whether `token` is that rank's; takes the same time however wrong it is."""
    return hmac.compare_digest(make(secret, task_id, run, rank).encode(), token.encode())
