"""Answers of the proxy itself: small pages that say what is wrong. They are not kept and run no foreign script."""

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


def speech(request: web.Request) -> str:
    """The language that the browser asks for."""
    return pages.language(request.headers.get("Accept-Language", ""))


def page(request: web.Request, key: str, status: int) -> web.Response:
    """One of the pages that are always the same."""
    nonce = new_nonce()
    return html(pages.simple(key, speech(request), nonce), nonce, status, PRIVATE)


def html(text: str, nonce: str, status: int, headers: Mapping[str, str]) -> web.Response:
    """A page of ours; only scripts with the nonce run."""
    return web.Response(
        text=text,
        status=status,
        content_type="text/html",
        headers={**headers, "Content-Security-Policy": pages.CSP.format(nonce)},
    )


def closed(answer: web.Response) -> web.Response:
    """The last one on its connection."""
    answer.force_close()
    return answer


def new_nonce() -> str:
    """For the scripts of one page."""
    return secrets.token_urlsafe(12)
