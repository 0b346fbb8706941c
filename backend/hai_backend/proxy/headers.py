"""Filters the headers of forwarded requests and responses, and detects cross-origin requests. Pure."""

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
_SET_BY_PROXY = frozenset({"forwarded", "x-real-ip", "host"})
_PROXY_PREFIXES = ("x-forwarded-", "x-hai-")
_CREDENTIALS = frozenset({"authorization", "cookie"})
_TRUSTED_SITES = ("same-origin", "none")


def to_service(
    headers: HEADERS, connection: str, host: str, scheme: str, user: str, cookie: str
) -> list[tuple[str, str]]:
    """Return the headers for a service: those of the browser without hop-by-hop headers, credentials and forgeries.

    `cookie` is the name of the proxy's own cookie, which the service must not get.
    """
    connection_headers = _connection_headers(connection)
    forwarded = [(n, v) for n, v in headers if _is_forwarded(_normalize(n), connection_headers)]
    if other_cookies := "; ".join(_other_cookies(headers, cookie)):
        forwarded.append(("Cookie", other_cookies))
    return [
        *forwarded,
        ("Host", host),
        ("X-Forwarded-Host", host),
        ("X-Forwarded-Proto", scheme),
        ("X-Hai-User", user),
    ]


def _normalize(name: str) -> str:
    """Normalize a name, because many servers (WSGI, CGI) do not distinguish `X_Hai_User` from `X-Hai-User`."""
    return name.lower().replace("_", "-")


def _is_forwarded(name: str, connection_headers: frozenset[str]) -> bool:
    if (
        name in _HOP_BY_HOP
        or name in _SET_BY_PROXY
        or name in _CREDENTIALS
        or name in connection_headers
    ):
        return False
    return not name.startswith((*_PROXY_PREFIXES, "sec-websocket-"))


def to_browser(headers: HEADERS, connection: str, cookie: str) -> Iterator[tuple[str, str]]:
    """Yield the headers for a browser. A service may set cookies for its own host only, and not the proxy's cookie."""
    connection_headers = _connection_headers(connection)
    for name, value in headers:
        lower_name = name.lower()
        if lower_name == "set-cookie":
            if (host_only := _host_only_cookie(value, cookie)) is not None:
                yield name, host_only
        elif lower_name not in _HOP_BY_HOP and lower_name not in connection_headers:
            yield name, value


def _connection_headers(connection: str) -> frozenset[str]:
    return frozenset(token.strip().lower() for token in connection.split(","))


def _other_cookies(headers: HEADERS, own_cookie: str) -> Iterator[str]:
    for name, value in headers:
        if name.lower() == "cookie":
            pairs = (pair.strip() for pair in value.split(";"))
            yield from (p for p in pairs if p and p.partition("=")[0].strip() != own_cookie)


def _host_only_cookie(value: str, own_cookie: str) -> str | None:
    first, *attributes = value.split(";")
    if first.partition("=")[0].strip() == own_cookie:
        return None
    return ";".join(
        [first, *(a for a in attributes if a.partition("=")[0].strip().lower() != "domain")]
    )


def cookie_value(header: str, name: str) -> str:
    """Return a cookie of a request. Empty if it has none, or several with that name, which only an attacker sends."""
    values = [
        value.strip()
        for pair in header.split(";")
        for key, _, value in (pair.partition("="),)
        if key.strip() == name
    ]
    return values[0] if len(values) == 1 else ""


def is_cross_origin(headers: Mapping[str, str], own_origin: str, method: str) -> bool:
    """Say whether a page of another origin sent this request. Browsers treat all containers as one site."""
    origin = headers.get("Origin")
    if origin is not None and origin != own_origin:
        return True
    if headers.get("Sec-Fetch-Site", "none") in _TRUSTED_SITES:
        return False
    return not _is_link(headers, method)


def _is_link(headers: Mapping[str, str], method: str) -> bool:
    """Say whether the request follows a link, which other origins may cause. Their frames could capture clicks."""
    is_document = headers.get("Sec-Fetch-Dest", "document") == "document"
    return headers.get("Sec-Fetch-Mode") == "navigate" and is_document and method in ("GET", "HEAD")


def set_cookie(name: str, value: str, path: str, seconds: int, *, secure: bool) -> str:
    """Build the header of a cookie that scripts cannot read and that is sent to this host only. Raises ValueError."""
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
