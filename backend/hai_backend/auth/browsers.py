"""Keys of browsers: a link that is good once, and a session that it is traded for. Pure: signed facts, nothing kept.

A browser never gets a token of the platform. What it holds says who it is in front of one task only, and is worth
nothing once that user's token is not good any more: whoever checks a session asks the directory, too.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict, dataclass

_MAC_BYTES = 32
_LONGEST = 1024


@dataclass(frozen=True, slots=True)
class Pass:
    """Who may see which task until when. `purpose` keeps links and sessions apart; `once` names a link."""

    purpose: str
    user: str
    token_id: int
    task_id: int
    expires_at: float
    once: str = ""


def signing_key(secret: bytes) -> bytes:
    """From the server's secret; run tokens are made of that, too, and must not be mixed up."""
    return hmac.digest(secret, b"hai browsers", "sha256")


def sign(key: bytes, what: Pass) -> str:
    """Text that nobody else can make; anybody can read it."""
    facts = json.dumps(asdict(what), separators=(",", ":")).encode()
    return _text(hmac.digest(key, facts, hashlib.sha256) + facts)


def read(key: bytes, purpose: str, text: str, now: float) -> Pass | None:
    """What was signed for this purpose; None: it was not, or its time is over."""
    try:
        data = _data(text)
    except ValueError:
        return None
    mac, facts = data[:_MAC_BYTES], data[_MAC_BYTES:]
    if not hmac.compare_digest(mac, hmac.digest(key, facts, hashlib.sha256)):
        return None
    found = Pass(**json.loads(facts))
    return found if found.purpose == purpose and now < found.expires_at else None


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _data(text: str) -> bytes:
    if len(text) > _LONGEST or not text.isascii():
        raise ValueError("no signed text")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
