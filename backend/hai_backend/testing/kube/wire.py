"""Answers that are not what the client hoped for: refusals, and connections that break."""

from __future__ import annotations

import json

from aiohttp import web

from hai_backend.testing.kube.errors import ApiError
from hai_backend.testing.kube.handling import Reply


def refusal(error: ApiError) -> web.Response:
    """An error as its Status body."""
    seconds = error.retry_after
    headers = {"Retry-After": str(seconds)} if seconds is not None else None
    body = json.dumps(error.status()).encode()
    return web.Response(
        status=error.code, body=body, content_type="application/json", headers=headers
    )


def sever(request: web.BaseRequest) -> None:
    """Break the connection."""
    if request.transport is not None:
        request.transport.abort()


def broken(request: web.BaseRequest) -> web.Response:
    """No answer: the connection is broken."""
    sever(request)
    return web.Response()


async def half(request: web.BaseRequest, reply: Reply) -> web.StreamResponse:
    """Half of an answer; then the connection ends."""
    response = web.StreamResponse(status=reply.code, headers={"Content-Type": reply.form})
    response.content_length = len(reply.body)
    await response.prepare(request)
    await response.write(reply.body[: len(reply.body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response
