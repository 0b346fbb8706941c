"""Sends requests to webhooks.

It follows no redirects, and it reports only the status of a response, because the response may come from an internal
service. aiohttp is imported by the first request, because the import would delay each start of a server.
"""

from __future__ import annotations

import asyncio

from hai_backend.domain.accounts.webhook import Format, origin_of
from hai_backend.domain.errors import Unavailable
from hai_backend.image_registry.proxies import proxy_to
from hai_backend.webhooks.payload import WebhookRequest, find_refusal

SECONDS = 10.0  # for a complete request
_RESPONSE_BYTES = 4096


async def post(request: WebhookRequest, format: Format) -> None:
    """Send a request. Raises Unavailable if the receiver does not accept it."""
    import aiohttp

    origin = origin_of(request.url)
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
            why = why or find_refusal(format, await response.content.read(_RESPONSE_BYTES))
    except TimeoutError as error:
        raise _failure(origin, f"no answer within {SECONDS:.0f} seconds") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _failure(origin, _describe_cause(error)) from error
    if why:
        raise _failure(origin, why)


def _describe_cause(error: Exception) -> str:
    """Describe an error without its text, which may contain the URL."""
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


def _failure(origin: str, why: str) -> Unavailable:
    return Unavailable(f"{origin} did not take it: {why}", reason="WEBHOOK_FAILED")
