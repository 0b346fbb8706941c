"""Sends requests to webhooks.

Follows no redirect, and reports only the status of a response, because the response may come from an internal service.
Imports aiohttp with the first request, because the import would delay the start of each server by half a second.
"""

from __future__ import annotations

import asyncio

from hai_backend.domain.accounts.webhook import Format, origin_of
from hai_backend.domain.errors import Unavailable
from hai_backend.registry.proxies import proxy_to
from hai_backend.webhooks.payload import WebhookRequest, refusal

SECONDS = 10.0  # for all of a request
_ANSWER_BYTES = 4096


async def post(request: WebhookRequest, format: Format) -> None:
    """Return when the receiver has accepted the request. Raises Unavailable with the reason if it has not."""
    import aiohttp

    where = origin_of(request.url)
    try:
        async with (
            asyncio.timeout(SECONDS),
            aiohttp.ClientSession() as session,
            session.post(
                request.url,
                data=request.body,
                headers=request.headers,
                allow_redirects=False,
                proxy=proxy_to(request.url),
            ) as response,
        ):
            why = f"it answered {response.status}" if not 200 <= response.status < 300 else ""
            why = why or refusal(format, await response.content.read(_ANSWER_BYTES))
    except TimeoutError as error:
        raise _failed(where, f"no answer within {SECONDS:.0f} seconds") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _failed(where, _cause(error)) from error
    if why:
        raise _failed(where, why)


def _cause(error: Exception) -> str:
    """Never the text of the error: it may contain the URL."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted here"
    if isinstance(error, aiohttp.ClientSSLError):
        return "it does not speak TLS"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name is not known"
    if isinstance(error, aiohttp.ClientConnectionError | OSError):
        return "it cannot be reached"
    return "it does not speak HTTP as it should"


def _failed(where: str, why: str) -> Unavailable:
    return Unavailable(f"{where} did not take it: {why}", reason="WEBHOOK_FAILED")
