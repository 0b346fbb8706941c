"""What is asked of registries: which digest an image has now, and which tags there are.

aiohttp is imported only when there is something to ask: it would cost every start of a server half a second.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hai_backend.domain.catalog.image import ImageReference, Registry
from hai_backend.registry.responses import down, read_json

if TYPE_CHECKING:
    from hai_backend.registry.http import Asking

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_SECONDS = 10.0
_TAGS = 10_000


class RegistryClient:
    """Asks one registry at a time. A session lives for one question: they are rare, and answers are cached above."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds  # for all of a question

    async def digest(self, image: ImageReference, registry: Registry) -> str:
        """What an image is now. Raises NotFound, Denied or Unavailable."""
        path = f"/v2/{image.repository}/manifests/{image.digest or image.tag}"
        async with self._asking(image, registry) as ask:
            answer = await ask("HEAD", path)
        found = answer.headers.get("Docker-Content-Digest", "")
        if not _DIGEST.fullmatch(found) or image.digest not in ("", found):
            raise down(image.registry, "names no digest for the image, or another one")
        return found

    async def tags(self, image: ImageReference, registry: Registry) -> tuple[str, ...]:
        """Tags in the image's repository, sorted. Raises NotFound, Denied or Unavailable."""
        tags: list[str] = []
        path: str | None = f"/v2/{image.repository}/tags/list?n=1000"
        async with self._asking(image, registry) as ask:
            while path and len(tags) < _TAGS:
                answer = await ask("GET", path)
                tags += _tags(image.registry, answer.body)
                path = answer.next_page
        return tuple(sorted(tags[:_TAGS]))

    @asynccontextmanager
    async def _asking(self, image: ImageReference, registry: Registry) -> AsyncIterator[Asking]:
        import aiohttp

        from hai_backend.registry.http import Asking

        try:
            async with asyncio.timeout(self._seconds), aiohttp.ClientSession() as session:
                yield Asking(session, image, registry)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise down(image.registry, _cause(error)) from error


def _tags(host: str, body: bytes) -> list[str]:
    """What reads like a tag: it is shown on terminals."""
    told = read_json(host, body).get("tags")
    tags = map(str, told if isinstance(told, list) else ())
    return [tag for tag in tags if _TAG.fullmatch(tag)]


def _cause(error: BaseException) -> str:
    import aiohttp

    if isinstance(error, TimeoutError):
        return "did not answer in time"
    if isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError):
        return "cannot be reached by the proxy that the server's environment names"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return "has a certificate that is not trusted here"
    return f"cannot be reached ({type(error).__name__})"
