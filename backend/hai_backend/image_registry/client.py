"""Queries registries: the current digest of an image, and its tags.

aiohttp is imported by the first query, because the import would delay each start of a server by half a second.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hai_backend.domain.catalog.image import ImageReference, Registry
from hai_backend.image_registry.responses import read_json, unavailable

if TYPE_CHECKING:
    from hai_backend.image_registry.http import RegistrySession

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_SECONDS = 10.0
_MAX_TAGS = 10_000


class RegistryClient:
    """Queries one registry per call. Each query has its own session: queries are rare, and cached by callers."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds  # timeout of a complete query

    async def digest(self, image: ImageReference, registry: Registry) -> str:
        """Return the current digest of an image. Raises NotFound, Denied or Unavailable."""
        path = f"/v2/{image.repository}/manifests/{image.digest or image.tag}"
        async with self._session(image, registry) as send:
            response = await send("HEAD", path)
        digest = response.headers.get("Docker-Content-Digest", "")
        if not _DIGEST.fullmatch(digest) or image.digest not in ("", digest):
            raise unavailable(
                image.registry, "returned no digest for the image, or a different one"
            )
        return digest

    async def tags(self, image: ImageReference, registry: Registry) -> tuple[str, ...]:
        """Return the sorted tags of the image's repository. Raises NotFound, Denied or Unavailable."""
        tags: list[str] = []
        path: str | None = f"/v2/{image.repository}/tags/list?n=1000"
        async with self._session(image, registry) as send:
            while path and len(tags) < _MAX_TAGS:
                response = await send("GET", path)
                tags += _read_tags(image.registry, response.body)
                path = response.next_page
        return tuple(sorted(tags[:_MAX_TAGS]))

    @asynccontextmanager
    async def _session(
        self, image: ImageReference, registry: Registry
    ) -> AsyncIterator[RegistrySession]:
        import aiohttp

        from hai_backend.image_registry.http import RegistrySession

        try:
            async with asyncio.timeout(self._seconds), aiohttp.ClientSession() as session:
                yield RegistrySession(session, image, registry)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise unavailable(image.registry, _describe_cause(error)) from error


def _read_tags(host: str, body: bytes) -> list[str]:
    """Return only valid tags, because they are displayed on terminals."""
    field = read_json(host, body).get("tags")
    tags = map(str, field if isinstance(field, list) else ())
    return [tag for tag in tags if _TAG.fullmatch(tag)]


def _describe_cause(error: BaseException) -> str:
    import aiohttp

    if isinstance(error, TimeoutError):
        return "did not answer in time"
    if isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError):
        return "cannot be reached by the proxy that the server's environment names"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return "has a certificate that is not trusted here"
    return f"cannot be reached ({type(error).__name__})"
