"""Bearer tokens: how they are made, and why one is refused. Only the SHA-256 of a secret is ever kept.

A secret has 256 random bits, so a plain hash is enough: there is nothing to guess, and a look-up
by hash leaks nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime

from hai_backend.domain.accounts.user import Token
from hai_backend.domain.errors import NotFound, Unauthenticated

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


class Keyring:
    """All tokens, by id, by the digest of their secret, and by who may act by them."""

    def __init__(self) -> None:
        self._tokens: dict[int, Token] = {}
        self._by_digest: dict[str, int] = {}
        self._of: dict[str, dict[int, Token]] = {}

    def put(self, token: Token) -> Token:
        """Set or replace one."""
        self._tokens[token.id] = token
        self._by_digest[token.secret_sha256] = token.id
        for name in _people(token):
            self._of.setdefault(name, {})[token.id] = token
        return token

    def remove(self, token_id: int) -> None:
        """Forget one, if it is there."""
        token = self._tokens.pop(token_id, None)
        if token is not None:
            del self._by_digest[token.secret_sha256]
            for name in _people(token):
                del self._of[name][token_id]

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def of_secret(self, secret: str) -> Token | None:
        """The token of a secret."""
        return self._tokens.get(self._by_digest.get(digest(secret), -1))

    def find(self, token_id: int) -> Token | None:
        """The token of an id."""
        return self._tokens.get(token_id)

    def get(self, token_id: int) -> Token:
        """The same. Raises NotFound."""
        token = self.find(token_id)
        if token is None:
            raise NotFound(f"there is no token {token_id}")
        return token

    def unrevoked(self) -> Iterator[Token]:
        """Those that were not revoked; some may have expired."""
        return (token for token in self._tokens.values() if not token.revoked)

    def of(self, user: str) -> tuple[Token, ...]:
        """Those that act as a user or that the user holds, newest first."""
        return tuple(reversed(self._of.get(user, {}).values()))


def _people(token: Token) -> set[str]:
    return {token.user, token.holder} - {""}
