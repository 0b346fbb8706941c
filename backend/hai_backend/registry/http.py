"""Questions to one registry by HTTP: GET and HEAD only, no redirects, and only so much is read.

Credentials go to the registry itself, or to the token service that it names, which must be spoken to by TLS unless
the registry is not; they stand in no URL, message or log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

import aiohttp

from hai_backend.domain.catalog.image import ImageReference, Registry, repository_path
from hai_backend.domain.errors import Denied, NotFound
from hai_backend.registry import challenge
from hai_backend.registry.proxies import proxy_to
from hai_backend.registry.responses import down, read_json

_TOKEN = re.compile(r"[!-~]+")
_BYTES = 4 * 1024 * 1024
_KINDS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
Headers = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """A good answer: what is looked at afterwards."""

    headers: Headers
    body: bytes
    next_page: str | None


class Asking:
    """Authenticates when it is asked to, once."""

    def __init__(
        self, session: aiohttp.ClientSession, image: ImageReference, registry: Registry
    ) -> None:
        self._session = session
        self._image = image
        self._registry = registry
        self._base = f"{'http' if registry.plain_http else 'https'}://{image.registry}"
        self._authorization: Headers = {}

    async def __call__(self, method: str, path: str) -> Answer:
        """Raises NotFound, Denied or Unavailable, and what aiohttp raises."""
        answer = await self._send(method, path)
        if answer.status == 401 and not self._authorization:
            self._authorization = await self._authorize(answer.headers.get("WWW-Authenticate", ""))
            answer = await self._send(method, path)
        self._check(answer.status)
        body = await _body(answer) if method == "GET" else b""
        return Answer(answer.headers, body, _next_page(self._base, answer))

    async def _send(self, method: str, path: str) -> aiohttp.ClientResponse:
        headers = {"Accept": _KINDS, **self._authorization}
        url = self._base + path
        return await self._session.request(
            method, url, headers=headers, allow_redirects=False, proxy=proxy_to(url)
        )

    def _check(self, status: int) -> None:
        image, account = self._image, self._registry.username
        if status == 404:
            raise NotFound(
                f"registry {image.registry} has no image {image}; "
                f"`hai image tags {repository_path(image)}` lists its tags",
                reason="NO_SUCH_IMAGE",
            )
        if status in (401, 403):
            known = f"as {account}" if account else "without an account"
            raise Denied(
                f"registry {image.registry} lets nobody see {repository_path(image)} who asks {known}; "
                "an admin sets the account with `hai registry set`",
                reason="IMAGE_DENIED",
            )
        if status != 200:
            raise down(image.registry, f"answers with status {status}")

    async def _authorize(self, header: str) -> Headers:
        asked = challenge.parse(header)
        if asked is None:
            raise down(self._image.registry, "asks for a kind of login that is not known here")
        if not asked.bearer:
            return self._basic()
        return {"Authorization": f"Bearer {await self._token(asked)}"}

    def _basic(self) -> dict[str, str]:
        if not self._registry.username:
            return {}
        login = aiohttp.encode_basic_auth(
            self._registry.username, self._registry.password, encoding="utf-8"
        )
        return {"Authorization": login}

    async def _token(self, asked: challenge.Challenge) -> str:
        """A token of the service that the registry names: Harbor, GitLab and others."""
        self._require_trust(asked.realm)
        query = {"service": asked.service, "scope": asked.scope}
        answer = await self._session.get(
            asked.realm,
            params={key: value for key, value in query.items() if value},
            headers=self._basic(),
            allow_redirects=False,
            proxy=proxy_to(asked.realm),
        )
        if answer.status == 404:
            raise down(self._image.registry, "names a token service that is not there")
        self._check(answer.status)
        told = read_json(self._image.registry, await _body(answer))
        token = str(told.get("token") or told.get("access_token") or "")
        if not _TOKEN.fullmatch(token):
            raise down(self._image.registry, "has a token service that gives no token")
        return token

    def _require_trust(self, realm: str) -> None:
        scheme = urlsplit(realm).scheme
        if scheme != "https" and not (self._registry.plain_http and scheme == "http"):
            raise down(
                self._image.registry, "wants its password sent in plain text to another place"
            )


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    """What was answered, or as much of it as we are ready to hold."""
    body = b""
    async for chunk in answer.content.iter_chunked(64 * 1024):
        body += chunk
        if len(body) > _BYTES:
            break
    return body


def _next_page(base: str, answer: aiohttp.ClientResponse) -> str | None:
    """The path of the next page, which must be of the same registry."""
    link = answer.links.get("next")
    if link is None or link.get("url") is None:
        return None
    url = urlsplit(urljoin(base, str(link["url"])))
    return f"{url.path}?{url.query}" if f"{url.scheme}://{url.netloc}" == base else None
