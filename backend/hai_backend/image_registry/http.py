"""HTTP requests to one registry: GET and HEAD only, no redirects, and responses of limited size.

Credentials are sent to the registry itself, or to the token service that it names, which must use TLS unless the
registry does not. They never appear in a URL, message or log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

import aiohttp

from hai_backend.domain.catalog.image import ImageReference, Registry, repository_path
from hai_backend.domain.errors import Denied, NotFound
from hai_backend.image_registry.proxies import proxy_to
from hai_backend.image_registry.responses import Challenge, parse_challenge, read_json, unavailable

_TOKEN = re.compile(r"[!-~]+")
_MAX_BODY_BYTES = 4 * 1024 * 1024
_MANIFEST_TYPES = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
Headers = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Response:
    """A successful response."""

    headers: Headers
    body: bytes
    next_page: str | None


class RegistrySession:
    """Sends requests to one registry, and authenticates once when the registry requires it."""

    def __init__(
        self, session: aiohttp.ClientSession, image: ImageReference, registry: Registry
    ) -> None:
        self._session = session
        self._image = image
        self._registry = registry
        self._base = f"{'http' if registry.plain_http else 'https'}://{image.registry}"
        self._authorization: Headers = {}

    async def __call__(self, method: str, path: str) -> Response:
        """Send a request. Raises NotFound, Denied or Unavailable, and errors of aiohttp."""
        response = await self._send(method, path)
        if response.status == 401 and not self._authorization:
            self._authorization = await self._authorize(
                response.headers.get("WWW-Authenticate", "")
            )
            response = await self._send(method, path)
        self._check_status(response.status)
        body = await _read_body(response) if method == "GET" else b""
        return Response(response.headers, body, _next_page(self._base, response))

    async def _send(self, method: str, path: str) -> aiohttp.ClientResponse:
        headers = {"Accept": _MANIFEST_TYPES, **self._authorization}
        url = self._base + path
        return await self._session.request(
            method, url, headers=headers, allow_redirects=False, proxy=proxy_to(url)
        )

    def _check_status(self, status: int) -> None:
        image, account = self._image, self._registry.username
        if status == 404:
            raise NotFound(
                f"registry {image.registry} has no image {image}; "
                f"`hai image tags {repository_path(image)}` lists its tags",
                reason="NO_SUCH_IMAGE",
            )
        if status in (401, 403):
            login = f"as {account}" if account else "without an account"
            raise Denied(
                f"registry {image.registry} denies access to {repository_path(image)} {login}; "
                "an admin sets the account with `hai registry set`",
                reason="IMAGE_DENIED",
            )
        if status != 200:
            raise unavailable(image.registry, f"returned status {status}")

    async def _authorize(self, header: str) -> Headers:
        challenge = parse_challenge(header)
        if challenge is None:
            raise unavailable(
                self._image.registry, "requires an authentication scheme that is not supported"
            )
        if not challenge.bearer:
            return self._basic_headers()
        return {"Authorization": f"Bearer {await self._fetch_token(challenge)}"}

    def _basic_headers(self) -> dict[str, str]:
        if not self._registry.username:
            return {}
        login = aiohttp.encode_basic_auth(
            self._registry.username, self._registry.password, encoding="utf-8"
        )
        return {"Authorization": login}

    async def _fetch_token(self, challenge: Challenge) -> str:
        """Fetch a token from the service that the registry names, as Harbor and GitLab do."""
        self._require_trust(challenge.realm)
        query = {"service": challenge.service, "scope": challenge.scope}
        response = await self._session.get(
            challenge.realm,
            params={key: value for key, value in query.items() if value},
            headers=self._basic_headers(),
            allow_redirects=False,
            proxy=proxy_to(challenge.realm),
        )
        if response.status == 404:
            raise unavailable(self._image.registry, "names a token service that does not exist")
        self._check_status(response.status)
        body = read_json(self._image.registry, await _read_body(response))
        token = str(body.get("token") or body.get("access_token") or "")
        if not _TOKEN.fullmatch(token):
            raise unavailable(self._image.registry, "has a token service that returned no token")
        return token

    def _require_trust(self, realm: str) -> None:
        scheme = urlsplit(realm).scheme
        if scheme != "https" and not (self._registry.plain_http and scheme == "http"):
            raise unavailable(
                self._image.registry, "requests its password in plain text for another host"
            )


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    """Read the body. Stop when it is larger than the limit."""
    body = b""
    async for chunk in response.content.iter_chunked(64 * 1024):
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            break
    return body


def _next_page(base: str, response: aiohttp.ClientResponse) -> str | None:
    """Return the path of the next page, which must be on the same registry."""
    link = response.links.get("next")
    if link is None or link.get("url") is None:
        return None
    url = urlsplit(urljoin(base, str(link["url"])))
    return f"{url.path}?{url.query}" if f"{url.scheme}://{url.netloc}" == base else None
