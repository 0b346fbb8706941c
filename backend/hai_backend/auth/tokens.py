"""Makes and checks the bearer tokens of users and the run tokens of agents.

Only the SHA-256 of a user's secret is stored. A secret has 256 random bits, so a plain hash is enough: it cannot be
guessed, and a lookup by hash leaks nothing. A run token is valid for one rank of one run, and is not stored.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime

from hai_backend.domain.accounts.user import Token
from hai_backend.domain.errors import NotFound, Unauthenticated

PREFIX = "hai_"


def new_secret() -> str:
    """Return a new random secret. Its owner sees it once."""
    return PREFIX + secrets.token_urlsafe(32)


def digest_secret(secret: str) -> str:
    """Return the hash that is stored instead of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def parse_bearer(header: str | None) -> str:
    """Return the secret in an `authorization` header. Raises Unauthenticated."""
    if not header:
        raise Unauthenticated("the call carries no token; run `hai init` or set HAI_TOKEN")
    scheme, _, secret = header.partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Unauthenticated("the authorization metadata must read `Bearer <token>`")
    return secret.strip()


def require_valid(token: Token, now: float) -> None:
    """Raise Unauthenticated, with the cause as reason, unless the token is valid now."""
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


def run_token(secret: bytes, task_id: int, run: int, rank: int) -> str:
    """Return the token of a rank. `secret` is the secret of the server."""
    return hmac.new(secret, f"{task_id}-{run}-{rank}".encode(), hashlib.sha256).hexdigest()


def is_run_token(secret: bytes, task_id: int, run: int, rank: int, token: str) -> bool:
    """Say whether `token` is the token of a rank. Compares in constant time."""
    return hmac.compare_digest(run_token(secret, task_id, run, rank).encode(), token.encode())


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Keyring:
    """All tokens, by id, by the digest of their secret, and by user and holder."""

    def __init__(self) -> None:
        self._tokens: dict[int, Token] = {}
        self._by_digest: dict[str, int] = {}
        self._by_user: dict[str, dict[int, Token]] = {}

    def put(self, token: Token) -> Token:
        """Add or replace a token."""
        self._tokens[token.id] = token
        self._by_digest[token.secret_sha256] = token.id
        for name in _users_of(token):
            self._by_user.setdefault(name, {})[token.id] = token
        return token

    def remove(self, token_id: int) -> None:
        """Remove a token if it exists."""
        token = self._tokens.pop(token_id, None)
        if token is not None:
            del self._by_digest[token.secret_sha256]
            for name in _users_of(token):
                del self._by_user[name][token_id]

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def find_by_secret(self, secret: str) -> Token | None:
        return self._tokens.get(self._by_digest.get(digest_secret(secret), -1))

    def find(self, token_id: int) -> Token | None:
        return self._tokens.get(token_id)

    def get(self, token_id: int) -> Token:
        """Return a token. Raises NotFound."""
        token = self.find(token_id)
        if token is None:
            raise NotFound(f"there is no token {token_id}")
        return token

    def unrevoked(self) -> Iterator[Token]:
        """Return the tokens that were not revoked, including expired ones."""
        return (token for token in self._tokens.values() if not token.revoked)

    def find_by_user(self, user: str) -> tuple[Token, ...]:
        """Return the tokens that act as a user or that the user holds, newest first."""
        return tuple(reversed(self._by_user.get(user, {}).values()))


def _users_of(token: Token) -> set[str]:
    return {token.user, token.holder} - {""}
