"""Sends letters. No redirect is followed, and nothing of an answer but a code is kept: it could be from inside.

aiohttp is imported only when there is something to send: it would cost every start of a server half a second.
"""

from __future__ import annotations

import asyncio

from hai_backend.domain.accounts.webhook import Format, origin_of
from hai_backend.domain.errors import Unavailable
from hai_backend.registry.proxies import proxy_to
from hai_backend.webhooks.bodies import Letter, refusal

SECONDS = 10.0  # for all of a request
_ANSWER_BYTES = 4096


async def post(letter: Letter, format: Format) -> None:
    """Return when the other side has taken it. Raises Unavailable with what it said instead."""
    import aiohttp

    where = origin_of(letter.url)
    try:
        async with (
            asyncio.timeout(SECONDS),
            aiohttp.ClientSession() as session,
            session.post(
                letter.url,
                data=letter.body,
                headers=letter.headers,
                allow_redirects=False,
                proxy=proxy_to(letter.url),
            ) as answer,
        ):
            why = f"it answered {answer.status}" if not 200 <= answer.status < 300 else ""
            why = why or refusal(format, await answer.content.read(_ANSWER_BYTES))
    except TimeoutError as error:
        raise _failed(where, f"no answer within {SECONDS:.0f} seconds") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _failed(where, _cause(error)) from error
    if why:
        raise _failed(where, why)


def _cause(error: Exception) -> str:
    """Never the text of the error: it may name the whole URL."""
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
