"""Queries to a registry that behaves like Harbor with a token service, and to faulty registries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import aiohttp
import pytest
from aiohttp import web

from hai_backend.domain.catalog.image import ImageReference, Registry, full_reference
from hai_backend.domain.errors import Denied, HaiError, NotFound, Unavailable
from hai_backend.image_registry.client import RegistryClient
from hai_backend.image_registry.proxies import proxy_to

DIGEST = "sha256:" + "a" * 64
PASSWORD = "hunter2"
ROBOT = aiohttp.encode_basic_auth("robot$lab+hai", PASSWORD)


@dataclass
class Harbor:
    """Issues a token to the robot account, counts requests, and misbehaves as its fields say."""

    realm: str = ""  # of the token service; empty means this server
    status: int = 200  # of manifests
    headers: dict[str, str] = field(default_factory=lambda: {"Docker-Content-Digest": DIGEST})
    body: bytes | None = None  # of the list of tags
    hang: bool = False
    token_status: int = 200
    token_value: str = ""  # replaces the correct one
    endless: bool = False  # pages without tags
    requests: list[tuple[str, str]] = field(default_factory=list)  # path, authorization
    host: str = ""

    async def token(self, request: web.Request) -> web.Response:
        self.requests.append((request.path_qs, request.headers.get("Authorization", "")))
        if self.token_status != 200:
            return web.Response(status=self.token_status)
        if request.headers.get("Authorization") != ROBOT:
            return web.Response(status=401)
        assert request.query["service"] == "harbor-registry"
        return web.json_response({"token": self.token_value or f"for-{request.query['scope']}"})

    async def api(self, request: web.Request) -> web.Response:
        self.requests.append((request.path_qs, request.headers.get("Authorization", "")))
        if self.hang:
            await asyncio.Event().wait()
        if request.headers.get("Authorization") != "Bearer for-repository:lab/a:pull":
            realm = self.realm or f"http://{self.host}/service/token"
            challenge = (
                f'Bearer realm="{realm}",service="harbor-registry",scope="repository:lab/a:pull"'
            )
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        if "manifests" in request.path:
            return web.Response(status=self.status, headers=self.headers)
        return self._page(request)

    def _page(self, request: web.Request) -> web.Response:
        if self.endless:
            link = {"Link": '</v2/lab/a/tags/list?n=1000>; rel="next"'}
            return web.json_response({"tags": []}, headers=link)
        if self.body is not None:
            return web.Response(body=self.body)
        if request.query.get("last") == "b":
            return web.json_response({"name": "lab/a", "tags": ["c"]})
        link = {"Link": '</v2/lab/a/tags/list?n=1000&last=b>; rel="next"'}
        return web.json_response({"name": "lab/a", "tags": ["a", "b"]}, headers=link)


@asynccontextmanager
async def running(harbor: Harbor) -> AsyncIterator[tuple[ImageReference, Registry]]:
    app = web.Application()
    app.router.add_get("/service/token", harbor.token)
    app.router.add_route("*", "/v2/{rest:.*}", harbor.api)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    harbor.host = f"127.0.0.1:{runner.addresses[0][1]}"
    registry = Registry(harbor.host, "robot$lab+hai", PASSWORD, plain_http=True)
    try:
        yield full_reference(f"{harbor.host}/lab/a:7"), registry
    finally:
        await runner.cleanup()


async def test_robot_account_gets_a_token_and_the_digest() -> None:
    harbor = Harbor()
    async with running(harbor) as (image, registry):
        assert await RegistryClient().digest(image, registry) == DIGEST
    paths = [path for path, _ in harbor.requests]
    assert paths == [
        "/v2/lab/a/manifests/7",
        "/service/token?service=harbor-registry&scope=repository:lab/a:pull",
        "/v2/lab/a/manifests/7",
    ]
    assert [authorization for _, authorization in harbor.requests][:2] == ["", ROBOT]


async def test_tags_come_in_pages() -> None:
    async with running(Harbor()) as (image, registry):
        assert await RegistryClient().tags(image, registry) == ("a", "b", "c")


BROKEN = [
    pytest.param(Harbor(status=404), NotFound, "has no image", id="no such tag"),
    pytest.param(Harbor(status=403), Denied, "as robot$lab+hai", id="no access"),
    pytest.param(Harbor(status=503), Unavailable, "returned status 503", id="broken"),
    pytest.param(Harbor(status=302), Unavailable, "returned status 302", id="a redirect"),
    pytest.param(Harbor(headers={}), Unavailable, "returned no digest", id="no digest"),
    pytest.param(
        Harbor(headers={"Docker-Content-Digest": f"{DIGEST} evil"}),
        Unavailable,
        "returned no digest",
        id="no digest but more",
    ),
    pytest.param(Harbor(token_status=404), Unavailable, "does not exist", id="no token service"),
    pytest.param(Harbor(token_status=403), Denied, "denies access to", id="no token"),
    pytest.param(Harbor(token_value="a\r\nX: b"), Unavailable, "no token", id="an odd token"),
    pytest.param(Harbor(hang=True), Unavailable, "did not answer in time", id="silent"),
    pytest.param(
        Harbor(realm="ftp://elsewhere.example/"), Unavailable, "in plain text", id="odd realm"
    ),
]


@pytest.mark.parametrize(("harbor", "kind", "message"), BROKEN)
async def test_failures_are_reported(harbor: Harbor, kind: type[HaiError], message: str) -> None:
    async with running(harbor) as (image, registry):
        with pytest.raises(kind, match=message.replace("$", r"\$").replace("+", r"\+")) as caught:
            await RegistryClient(seconds=0.3 if harbor.hang else 5).digest(image, registry)
    assert PASSWORD not in str(caught.value)


async def test_wrong_password_is_denied() -> None:
    async with running(Harbor()) as (image, _):
        wrong = Registry(image.registry, "robot$lab+hai", "guess", plain_http=True)
        with pytest.raises(Denied, match="an admin sets the account"):
            await RegistryClient().digest(image, wrong)
        with pytest.raises(Denied, match="without an account"):
            await RegistryClient().digest(image, Registry(image.registry, plain_http=True))


async def test_password_is_not_sent_without_tls() -> None:
    """The token service of a registry with TLS must use TLS, too."""
    harbor = Harbor(realm="http://elsewhere.example/token")
    async with running(harbor) as (image, registry):
        with pytest.raises(Unavailable, match=r"cannot be reached|not trusted"):
            await RegistryClient().digest(image, Registry(registry.prefix, "u", "p"))
    assert harbor.requests == []


@pytest.mark.parametrize("body", [b"[]", b'{"tags": null}', b'{"tags": 5}', b"{}"])
async def test_missing_lists_are_empty(body: bytes) -> None:
    async with running(Harbor(body=body)) as (image, registry):
        assert await RegistryClient().tags(image, registry) == ()


async def test_endless_pages_are_limited() -> None:
    async with running(Harbor(endless=True)) as (image, registry):
        with pytest.raises(Unavailable, match="did not answer in time"):
            await RegistryClient(seconds=0.3).tags(image, registry)


async def test_invalid_tags_are_left_out() -> None:
    body = b'{"tags": ["7", "\\u001b[2J", "a b", 8, ""]}'
    async with running(Harbor(body=body)) as (image, registry):
        assert await RegistryClient().tags(image, registry) == ("7", "8")


async def test_unexpected_digest_is_refused() -> None:
    async with running(Harbor()) as (image, registry):
        pinned = replace(image, digest=DIGEST)
        assert await RegistryClient().digest(pinned, registry) == DIGEST
        other = replace(image, digest="sha256:" + "b" * 64)
        with pytest.raises(Unavailable, match="or a different one"):
            await RegistryClient().digest(other, registry)


@pytest.mark.parametrize("body", [b"<html>", b"[" * 100_000], ids=["html", "nesting"])
async def test_html_instead_of_a_list_is_refused(body: bytes) -> None:
    async with running(Harbor(body=body)) as (image, registry):
        with pytest.raises(Unavailable, match="not JSON"):
            await RegistryClient().tags(image, registry)


@pytest.mark.parametrize("proxy_url", ["http://{}", "{}", "http://ada:secret@{}"])
async def test_registry_is_reached_through_a_proxy(
    proxy_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy is one that has the registry's answers itself."""
    harbor = Harbor()
    async with running(harbor) as (image, registry):
        proxy, harbor.host = harbor.host, "registry.example"
        monkeypatch.setenv("http_proxy", proxy_url.format(proxy))
        away = replace(image, registry="registry.example")
        assert await RegistryClient().digest(away, replace(registry, prefix=harbor.host)) == DIGEST


async def test_unreachable_proxy_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(Harbor()) as (image, registry):
        proxy = image.registry
    monkeypatch.setenv("http_proxy", f"http://ada:secret@{proxy}")
    away = replace(image, registry="registry.example")
    with pytest.raises(Unavailable, match="by the proxy that the server's environment") as caught:
        await RegistryClient().digest(away, registry)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "url", "proxy"),
    [
        pytest.param({}, "https://r.org/v2", None, id="none"),
        pytest.param({"https_proxy": "http://p:1"}, "https://r.org/v2", "http://p:1", id="https"),
        pytest.param({"HTTPS_PROXY": "p:1"}, "https://r.org/v2", "http://p:1", id="no scheme"),
        pytest.param({"http_proxy": "http://p:1"}, "https://r.org/v2", None, id="of http only"),
        pytest.param({"all_proxy": "http://p:1"}, "https://r.org/v2", "http://p:1", id="of all"),
        pytest.param({"all_proxy": "socks5://p:1"}, "https://r.org/v2", None, id="socks"),
        pytest.param({"all_proxy": "p:1", "no_proxy": ".org"}, "https://r.org/v2", None, id="domain"),
        pytest.param({"all_proxy": "p:1", "no_proxy": "r.org:5"}, "http://r.org:5/", None, id="port"),
        pytest.param({"all_proxy": "p:1", "no_proxy": "*"}, "https://r.org/v2", None, id="nowhere"),
        pytest.param({"all_proxy": "p:1"}, "http://localhost:5000/v2", None, id="this machine"),
        pytest.param({"all_proxy": "p:1"}, "http://[::1]:5000/v2", None, id="this machine by IPv6"),
    ],
)  # fmt: skip
def test_proxy_is_selected_for_a_url(
    variables: dict[str, str], url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_to(url) == proxy


async def test_unreachable_registry_is_reported() -> None:
    async with running(Harbor()) as (image, registry):
        pass
    with pytest.raises(Unavailable, match="cannot be reached") as caught:
        await RegistryClient().digest(image, registry)
    assert caught.value.reason == "REGISTRY_DOWN"
