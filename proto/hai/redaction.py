"""Removes credentials from the URLs in a text, such as a reason, a record, an error or a line of a log.

A secret is a password, a token in place of the user (`https://TOKEN@host`), or the value of a query parameter such as
`access_token`. Two cases are not secrets: a user without a password if the scheme is not http (`ssh://git@host`), and
a variable that is replaced later (`https://${USER}:${PASSWORD}@host`). In texts for people, a secret becomes `****`. In
records that a program reads again, it is removed, as in PEP 610. This module imports no other module of ours, so every
package may use it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "****"
"""What stands for a secret. A URL with it cannot be used, so a submission that has one is refused."""

_USER = re.compile(r'([A-Za-z][A-Za-z0-9+.-]*)://([^\s/?#"<>]*)@')
# A password with characters that should be percent-encoded. The text after `HOST:` is not a port.
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
    """Return the text with `****` in place of each secret in its URLs. A second call changes nothing."""
    if "://" not in text:
        return text
    text = _NOT_ENCODED.sub(_masked_user, _USER.sub(_masked_user, text))
    return _QUERY.sub(lambda query: _filtered(query, MASK), text)


def redact_values(value: object) -> object:
    """Call `redact` for all strings in nested mappings, lists and tuples, and return the same structure."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: redact_values(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(redact_values, value))
    return value


def without_credentials(text: str) -> str:
    """Return the text with its URLs as in PEP 610: without passwords, tokens and secret parameters."""
    if "://" not in text:
        return text
    text = _NOT_ENCODED.sub(_bare_user, _USER.sub(_bare_user, text))
    return _QUERY.sub(lambda query: _filtered(query, ""), text)


def is_redacted(text: str) -> bool:
    """Return whether the text has a URL with `****` in place of a secret."""
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
    """Return the query with `mask` as the value of secret parameters; if `mask` is empty, without these parameters."""
    kept = []
    for parameter in query[1].split("&"):
        name, _, value = parameter.partition("=")
        secret = _SECRET_PARAMETER.fullmatch(name) and not _NO_SECRET.fullmatch(value)
        if not secret:
            kept.append(parameter)
        elif mask:
            kept.append(f"{name}={mask}")
    return f"?{'&'.join(kept)}" if kept else ""
