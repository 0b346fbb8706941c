"""Takes credentials out of URLs, wherever they stand in a text: a reason, a record, an error, a line of a log.

A secret is a password, a token in place of a user (`https://TOKEN@host`) or the value of a query parameter such as
`access_token`. A user alone is none where it is only a name (`ssh://git@host`), nor is a variable that is filled in
later (`https://${USER}:${PASSWORD}@host`). For people a secret becomes `****`; for records that a program reads again
it is left out, as PEP 610 does. Imports nothing of ours, so every package may use it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "****"
"""What stands for a secret. A URL with it cannot be used, so a submission that has one is refused."""

_USER = re.compile(r'([A-Za-z][A-Za-z0-9+.-]*)://([^\s/?#"<>]*)@')
# A password that was not percent-encoded: behind `HOST:` stands no port
_NOT_ENCODED = re.compile(
    r'([A-Za-z][A-Za-z0-9+.-]*)://(?!\[)([^\s/?#@:"<>]+:(?!\d*(?:[/?#\s]|$)|\$\{)[^\s"<>]*)@'
)
_QUERY = re.compile(r"""\?([^\s#"'<>]+)""")
_SECRET_PARAMETER = re.compile(
    r"sig|auth|.*(?:token|password|passwd|pwd|secret|signature|credential|api[-_]?key|access[-_]?key(?:[-_]?id)?)",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(r"(?:\$\{\w+\})?|\*{4}")
_MASKED = re.compile(r"://\*{4}@|[?&][^=\s&]+=\*{4}(?![^&#\s])")


def redact(text: str) -> str:
    """The text with `****` in place of each secret in its URLs. Doing it again changes nothing."""
    if "://" not in text:
        return text
    text = _NOT_ENCODED.sub(_masked_user, _USER.sub(_masked_user, text))
    return _QUERY.sub(lambda query: _filtered(query, MASK), text)


def redact_values(value: object) -> object:
    """The same for all texts in mappings and lists, which keep their shape."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: redact_values(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(redact_values, value))
    return value


def without_credentials(text: str) -> str:
    """The text with its URLs as PEP 610 records them: no password, no token, no secret parameter."""
    if "://" not in text:
        return text
    text = _NOT_ENCODED.sub(_bare_user, _USER.sub(_bare_user, text))
    return _QUERY.sub(lambda query: _filtered(query, ""), text)


def is_redacted(text: str) -> bool:
    """True when `****` stands for a secret in a URL of the text."""
    return _MASKED.search(text) is not None


def _masked_user(url: re.Match[str]) -> str:
    return f"{url[1]}://{MASK}@" if _is_secret(url[1], url[2]) else url[0]


def _bare_user(url: re.Match[str]) -> str:
    if not _is_secret(url[1], url[2]):
        return url[0]
    user = "" if _is_http(url[1]) else url[2].partition(":")[0]
    return f"{url[1]}://{user}@" if user else f"{url[1]}://"


def _is_secret(scheme: str, user_info: str) -> bool:
    user, _, password = user_info.partition(":")
    secret = password or (user if _is_http(scheme) else "")
    return _NO_SECRET.fullmatch(secret) is None


def _is_http(scheme: str) -> bool:
    return scheme.lower().rpartition("+")[2] in ("http", "https")


def _filtered(query: re.Match[str], mask: str) -> str:
    """The query with `mask` as the value of secret parameters; without them when that is empty."""
    kept = []
    for parameter in query[1].split("&"):
        name, _, value = parameter.partition("=")
        secret = _SECRET_PARAMETER.fullmatch(name) and not _NO_SECRET.fullmatch(value)
        if not secret:
            kept.append(parameter)
        elif mask:
            kept.append(f"{name}={mask}")
    return f"?{'&'.join(kept)}" if kept else ""
