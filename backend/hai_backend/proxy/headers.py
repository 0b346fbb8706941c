"""Which headers go through the proxy, and which requests are refused for theirs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from http.cookies import CookieError, SimpleCookie

HEADERS = Iterable[tuple[str, str]]

_HOP_BY_HOP = frozenset(
    {
        *(
            "connection",
            "keep-alive",
            "proxy-authenticate",
            "proxy-authorization",
            "proxy-connection",
        ),
        *("te", "trailer", "transfer-encoding", "upgrade", "expect", "http2-settings"),
    }
)
_SAID_BY_US = frozenset({"forwarded", "x-real-ip", "host"})
_OUR_PREFIXES = ("x-forwarded-", "x-hai-")
_SECRET = frozenset({"authorization", "cookie"})
_OWN_SITES = ("same-origin", "none")


def to_service(
    headers: HEADERS, connection: str, host: str, scheme: str, user: str, cookie: str
) -> list[tuple[str, str]]:
    """What a service is told: what the browser said, less what is between it and us, or speaks for us."""
    named = _named(connection)
    kept = [(n, v) for n, v in headers if _goes_in(_read_as(n), named)]
    if others := "; ".join(_other_cookies(headers, cookie)):
        kept.append(("Cookie", others))
    return [
        *kept,
        ("Host", host),
        ("X-Forwarded-Host", host),
        ("X-Forwarded-Proto", scheme),
        ("X-Hai-User", user),
    ]


def _read_as(name: str) -> str:
    """Many servers cannot tell `X_Hai_User` from `X-Hai-User` (WSGI, CGI)."""
    return name.lower().replace("_", "-")


def _goes_in(name: str, named: frozenset[str]) -> bool:
    if name in _HOP_BY_HOP or name in _SAID_BY_US or name in _SECRET or name in named:
        return False
    return not name.startswith((*_OUR_PREFIXES, "sec-websocket-"))


def to_browser(headers: HEADERS, connection: str, cookie: str) -> Iterator[tuple[str, str]]:
    """What a browser is told: cookies of a service are for its own host only, and never ours."""
    named = _named(connection)
    for name, value in headers:
        small = name.lower()
        if small == "set-cookie":
            if (kept := _own_cookie(value, cookie)) is not None:
                yield name, kept
        elif small not in _HOP_BY_HOP and small not in named:
            yield name, value


def _named(connection: str) -> frozenset[str]:
    return frozenset(word.strip().lower() for word in connection.split(","))


def _other_cookies(headers: HEADERS, ours: str) -> Iterator[str]:
    for name, value in headers:
        if name.lower() == "cookie":
            pairs = (pair.strip() for pair in value.split(";"))
            yield from (p for p in pairs if p and p.partition("=")[0].strip() != ours)


def _own_cookie(value: str, ours: str) -> str | None:
    first, *rest = value.split(";")
    if first.partition("=")[0].strip() == ours:
        return None
    return ";".join([first, *(a for a in rest if a.partition("=")[0].strip().lower() != "domain")])


def cookie_value(header: str, name: str) -> str:
    """One cookie of a request; empty: it has none, or more than one of that name, which only an attack has."""
    found = [
        value.strip()
        for pair in header.split(";")
        for key, _, value in (pair.partition("="),)
        if key.strip() == name
    ]
    return found[0] if len(found) == 1 else ""


def foreign(headers: Mapping[str, str], own_origin: str, method: str) -> bool:
    """Whether a page of another origin has made this request; to browsers, containers are one site."""
    origin = headers.get("Origin")
    if origin is not None and origin != own_origin:
        return True
    if headers.get("Sec-Fetch-Site", "none") in _OWN_SITES:
        return False
    return not _is_link(headers, method)


def _is_link(headers: Mapping[str, str], method: str) -> bool:
    """Following a link is all that others may bring about; a frame in their page would steal clicks."""
    whole_page = headers.get("Sec-Fetch-Dest", "document") == "document"
    return headers.get("Sec-Fetch-Mode") == "navigate" and whole_page and method in ("GET", "HEAD")


def set_cookie(name: str, value: str, path: str, seconds: int, *, secure: bool) -> str:
    """A cookie that pages cannot read, and that goes to this host only. Raises ValueError."""
    cookie: SimpleCookie = SimpleCookie()
    try:
        cookie[name] = value
    except CookieError as error:
        raise ValueError(str(error)) from error
    morsel = cookie[name]
    morsel["path"], morsel["max-age"] = path, seconds
    morsel["httponly"], morsel["samesite"] = True, "Lax"
    if secure:
        morsel["secure"] = True
    return morsel.OutputString()
