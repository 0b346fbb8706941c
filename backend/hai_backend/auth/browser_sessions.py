"""Signed credentials of browsers: a link that can be used once, and the session that it is exchanged for.

A browser never gets a token of the platform. Its credential authenticates one user for one task. It is valid only
while that user's token is valid: code that reads a session must also look the token up (auth.directory). The server
stores nothing. The functions have no side effects.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict, dataclass

_MAC_BYTES = 32
_MAX_CHARS = 1024


@dataclass(frozen=True, slots=True)
class Pass:
    """Allows a user to see one task until `expires_at`. `purpose` is "link" or "session". `once` identifies a link."""

    purpose: str
    user: str
    token_id: int
    task_id: int
    expires_at: float
    once: str = ""


def signing_key(secret: bytes) -> bytes:
    """Derive the key for signatures from the server's secret. Run tokens are signed with the secret itself."""
    return hmac.digest(secret, b"hai browsers", "sha256")


def sign(key: bytes, credential: Pass) -> str:
    """Return the credential as base64url of an HMAC and JSON. It is signed, but not encrypted."""
    payload = json.dumps(asdict(credential), separators=(",", ":")).encode()
    return _encode(hmac.digest(key, payload, hashlib.sha256) + payload)


def verify(key: bytes, purpose: str, text: str, now: float) -> Pass | None:
    """Return the credential in a signed text, or None if its signature or purpose is wrong, or if it has expired."""
    try:
        data = _decode(text)
    except ValueError:
        return None
    mac, payload = data[:_MAC_BYTES], data[_MAC_BYTES:]
    if not hmac.compare_digest(mac, hmac.digest(key, payload, hashlib.sha256)):
        return None
    credential = Pass(**json.loads(payload))
    is_valid = credential.purpose == purpose and now < credential.expires_at
    return credential if is_valid else None


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    if len(text) > _MAX_CHARS or not text.isascii():
        raise ValueError("not a signed credential")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
