"""Bearer tokens: how they are made, and why one is refused. Only the SHA-256 of a secret is ever kept.

A secret has 256 random bits, so a plain hash is enough: there is nothing to guess, and a look-up
by hash leaks nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime

from hai_backend.domain.errors import Unauthenticated
from hai_backend.domain.user import Token

PREFIX = "hai_"


def new_secret() -> str:
    """A fresh secret; shown to its owner once."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def bearer(header: str | None) -> str:
    """The secret in an `authorization` header. Raises Unauthenticated."""
    if not header:
        raise Unauthenticated("the call carries no token; run `hai init` or set HAI_TOKEN")
    scheme, _, secret = header.partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Unauthenticated("the authorization metadata must read `Bearer <token>`")
    return secret.strip()


def check(token: Token, now: float) -> None:
    """Raise Unauthenticated, each cause with its own reason, unless the token is good now."""
    if token.revoked:
        raise Unauthenticated(
            f"token {token.id} of {token.user} has been revoked; make a new one with `hai token create`",
            reason="TOKEN_REVOKED",
        )
    if token.expires_at is not None and now >= token.expires_at:
        raise Unauthenticated(
            f"token {token.id} of {token.user} expired at {_utc(token.expires_at)}; the server's clock says "
            f"{_utc(now)}; make a new one with `hai token create`, or set the clock right",
            reason="TOKEN_EXPIRED",
        )


def _utc(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
