"""Responses of the proxy itself: small pages that are not cached and run no foreign script."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from aiohttp import web

from hai_backend.proxy import pages

PRIVATE = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def language_of(request: web.Request) -> str:
    """Return the language of the browser."""
    return pages.language(request.headers.get("Accept-Language", ""))


def page(request: web.Request, key: str, status: int) -> web.Response:
    """Return one of the static pages."""
    nonce = new_nonce()
    return html(pages.static_page(key, language_of(request), nonce), nonce, status, PRIVATE)


def html(text: str, nonce: str, status: int, headers: Mapping[str, str]) -> web.Response:
    """Return a page on which only scripts with the nonce run."""
    return web.Response(
        text=text,
        status=status,
        content_type="text/html",
        headers={**headers, "Content-Security-Policy": pages.CSP.format(nonce)},
    )


def close_after(response: web.Response) -> web.Response:
    """Close the connection after this response."""
    response.force_close()
    return response


def new_nonce() -> str:
    """Return a nonce for the scripts of one page."""
    return secrets.token_urlsafe(12)
