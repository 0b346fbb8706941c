"""Requests of browsers to services of tasks, through a real server, real agents and an echo service."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from yarl import URL

from hai.v1.task_pb2 import TASK_STATE_RUNNING, Task
from hai_backend.proxy.connections import ConnectionLimits
from hai_backend.proxy.connector import MAX_PER_SERVICE
from tests.support.service_cluster import (
    ServiceCluster,
    origin_of,
    process_service_cluster,
    sign_in,
)

STRANGERS = ConnectionLimits().max_anonymous
TOKENLIKE = {"Authorization": "Bearer hai_secret", "Proxy-Authorization": "Basic eA=="}


async def echoed(session: aiohttp.ClientSession, url: str, **more: Any) -> dict[str, Any]:
    async with session.request(more.pop("method", "GET"), url, **more) as answer:
        assert answer.status == 200, await answer.text()
        found: dict[str, Any] = json.loads(await answer.read())
        return found


async def status(session: aiohttp.ClientSession, url: str, **more: Any) -> int:
    async with session.request(
        more.pop("method", "GET"), url, allow_redirects=False, **more
    ) as answer:
        await answer.read()
        return answer.status


async def raw(url: str, request: bytes) -> bytes:
    """Send bytes that an HTTP client would not send, and return the answer, or `(waits)` after five seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
    writer.write(request)
    try:
        async with asyncio.timeout(5):
            return await reader.read(1 << 20)
    except TimeoutError:
        return b"(waits)"
    finally:
        writer.transport.abort()


def cookie_of(session: aiohttp.ClientSession, url: str) -> str:
    return "; ".join(
        f"{c.key}={c.value}" for c in session.cookie_jar.filter_cookies(URL(url)).values()
    )


async def test_requests_reach_the_service_and_nothing_secret_does(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    url = await sign_in(web, cluster.client, (await cluster.start_task()).id)
    headers = {**TOKENLIKE, "X-Forwarded-For": "10.0.0.1", "X-Hai-User": "root", "X-Own": "1"}
    web.cookie_jar.update_cookies({"own": "1"}, response_url=URL(url))
    told = await echoed(web, f"{url}a/b%2Fc?q=%20x", headers=headers)
    assert told["path"] == "/a/b%2Fc?q=%20x"
    names = {name.lower(): value for name, value in told["headers"]}
    assert names["cookie"] == "own=1"
    assert "authorization" not in names
    assert "proxy-authorization" not in names
    assert "x-forwarded-for" not in names
    assert names["x-hai-user"] == "admin"
    assert names["x-own"] == "1"
    assert names["host"] == urlsplit(url).netloc
    assert cluster.server.profile.token not in json.dumps(told)


async def test_a_browser_that_signs_in_leaves_a_row_of_the_audit(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    task = await cluster.start_task()
    url = await sign_in(web, cluster.client, task.id)
    await echoed(web, url)
    found = [row async for row in cluster.client.audit.rows(method="BrowserLogin")]
    assert [(row.actor, row.resource) for row in found] == [("admin", str(task.id))]


async def test_refused_links_are_recorded_and_counted(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    task = await cluster.start_task()
    opened = await cluster.client.containers.open(task.id)
    for _ in range(3):
        assert await status(web, opened.link.replace("key=", "key=x")) == 403
    for _ in range(500):  # the row is written in parallel with the answer
        if found := [row async for row in cluster.client.audit.rows(code="PERMISSION_DENIED")]:
            break
        await asyncio.sleep(0.02)
    assert [(row.method, row.actor, row.what) for row in found] == [
        ("BrowserLogin", "unknown", "refused 1 time: 127.0.0.1 (1)")
    ]
    labels = {"method": "BrowserLogin", "code": "PERMISSION_DENIED"}
    registry = cluster.server.app.metrics.registry
    assert registry.get_sample_value("hai_rpc_seconds_count", labels) == 3


async def test_bodies_of_any_size_and_framing(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    url = await sign_in(web, cluster.client, (await cluster.start_task()).id)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 10_000

    assert (await echoed(web, url, method="POST", data=b"y" * 900_000))["length"] == 900_000
    assert (await echoed(web, url, method="PUT", data=chunks()))["length"] == 1_000_000
    assert (await echoed(web, url, method="DELETE"))["length"] == 0
    async with web.get(f"{url}large?pieces=100") as answer:
        assert len(await answer.read()) == 6_553_600
    async with web.head(url) as answer:
        assert (answer.status, await answer.read()) == (200, b"")


async def test_cookies_and_redirects_of_a_service(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    url = await sign_in(web, cluster.client, (await cluster.start_task()).id)
    before = cookie_of(web, url)
    async with web.get(f"{url}cookies") as answer:
        assert answer.headers.getall("Set-Cookie") == ["own=1; Path=/; HttpOnly"]
    assert before in cookie_of(web, url)
    async with web.get(f"{url}redirect", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, "/elsewhere")


async def test_websockets_of_all_kinds_of_messages(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    url = await sign_in(web, cluster.client, (await cluster.start_task()).id)
    socket_url = url.replace("http:", "ws:") + "kernels"
    headers = {"Origin": origin_of(url)}
    async with web.ws_connect(
        socket_url, protocols=["v1.kernel", "other"], headers=headers, max_msg_size=0
    ) as socket:
        assert socket.protocol == "v1.kernel"
        for message in ("hello", "", "ü" * 100_000):
            await socket.send_str(message)
            assert await socket.receive_str() == message
        await socket.send_bytes(b"\0" * 2_000_000)
        assert len(await socket.receive_bytes()) == 2_000_000
        await socket.send_str("bye")
        assert (await socket.receive()).data == 4001


async def test_many_websockets_keep_no_request_waiting(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    """A user with too many open tabs gets status 429, and the service still answers."""
    task = await cluster.start_task()
    url = await sign_in(web, cluster.client, task.id)
    opened = [await web.ws_connect(f"{url}socket") for _ in range(MAX_PER_SERVICE)]
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await web.ws_connect(f"{url}socket")
    assert refused.value.status == 429
    assert (await echoed(web, f"{url}x"))["path"] == "/x"
    await opened.pop().close()
    while len(opened) < MAX_PER_SERVICE:  # the proxy notices the close with a delay
        with contextlib.suppress(aiohttp.WSServerHandshakeError):
            opened.append(await web.ws_connect(f"{url}socket"))
    for socket in opened:
        await socket.close()


async def test_requests_that_last_are_told_from_a_service_that_starts(
    cluster: ServiceCluster, web: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If long requests, such as streams of events, use all connections, the next request gets status 429."""
    url = await sign_in(web, cluster.client, (await cluster.start_task()).id)
    lasting = [await web.get(f"{url}large?pieces=4000") for _ in range(MAX_PER_SERVICE)]
    session = cluster.server.app.leader.serving.proxy._server._requests._client  # type: ignore[union-attr]
    monkeypatch.setattr(session, "_timeout", aiohttp.ClientTimeout(connect=0.05))
    assert await status(web, f"{url}x") == 429
    for answer in lasting:
        answer.close()


async def test_who_is_not_signed_in_learns_nothing(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    task = await cluster.start_task()
    url = (await cluster.client.containers.open(task.id)).url
    texts = []
    for where in (url, url.replace(f"t{task.id}.", "t9999.")):
        async with web.get(where) as answer:
            assert answer.status == 401
            texts.append(
                (await answer.text()).replace(answer.headers["Content-Security-Policy"], "")
            )
    assert len({len(text) for text in texts}) == 1


async def test_a_link_works_once_and_for_its_own_task(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    one, two = await cluster.start_task("one"), await cluster.start_task("two")
    opened = await cluster.client.containers.open(one.id)
    assert await status(web, opened.link.replace(f"t{one.id}.", f"t{two.id}.")) == 403
    assert await status(web, opened.link) == 303
    assert await status(web, opened.link) == 403
    assert await status(web, opened.link + "x") == 403
    assert await status(web, opened.url) == 200
    other = (await cluster.client.containers.open(two.id)).url
    assert await status(web, other) == 401
    stolen = {"Cookie": cookie_of(web, opened.url)}
    assert await status(web, other, headers=stolen) == 401


async def test_sessions_end_with_the_token_and_with_sight(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    assert cluster.server.app.leader is not None
    directory = cluster.server.app.leader.directory
    admin = directory.user("admin")
    await directory.update_user(type(admin)(admin.name, admin.role, ("lab",)))
    task = await cluster.start_task(shared_in_group=True)
    async with (
        await cluster.create_user_client("bob", "lab") as bob,
        await cluster.create_user_client("eve", "other") as eve,
    ):
        url = await sign_in(web, bob, task.id)
        told = await echoed(web, url)
        assert ["X-Hai-User", "bob"] in told["headers"]
        async with web.ws_connect(url.replace("http:", "ws:")) as socket:
            await directory.update_user(type(admin)("bob", directory.user("bob").role, ()))
            closing = await socket.receive()
            assert (closing.type, closing.data) == (aiohttp.WSMsgType.CLOSE, 1008)
        assert await status(web, url) == 404
        with pytest.raises(Exception, match="there is no task"):
            await eve.containers.open(task.id)
        await directory.update_user(type(admin)("bob", directory.user("bob").role, ("lab",)))
        assert await status(web, url) == 200
        async with (
            web.get(f"{url}large?pieces=1000") as file,
            web.get(f"{url}.hai/events?service=x") as news,
        ):
            await file.content.readexactly(65536)
            await _event(news)
            for token in directory.tokens_of("bob"):
                await directory.revoke_token(token.id)
            with pytest.raises(aiohttp.ClientPayloadError):
                await file.read()
            with pytest.raises(aiohttp.ClientPayloadError):
                await news.read()
        assert await status(web, url) == 401


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param({"Origin": "http://t2.localhost:1"}, 403, id="page of another container"),
        pytest.param({"Origin": "null"}, 403, id="sandboxed page"),
        pytest.param(
            {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403, id="script tag"
        ),
        pytest.param(
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200, id="a link"
        ),
        pytest.param(
            {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200, id="its own"
        ),
    ],
)
async def test_pages_of_others_cannot_ask_in_my_name(
    cluster: ServiceCluster, web: aiohttp.ClientSession, headers: dict[str, str], expected: int
) -> None:
    url = await sign_in(web, cluster.client, (await cluster.start_task()).id)
    assert await status(web, url, headers=headers) == expected
    if expected == 403:
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await web.ws_connect(url.replace("http:", "ws:"), headers=headers)


async def test_hostile_bytes(cluster: ServiceCluster, web: aiohttp.ClientSession) -> None:
    url = await sign_in(web, cluster.client, (await cluster.start_task()).id)
    netloc, cookie = urlsplit(url).netloc, cookie_of(web, url)
    head = f"Host: {netloc}\r\nCookie: {cookie}\r\n".encode()
    both = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"
    for name, request in {
        "two lengths": b"POST / HTTP/1.1\r\n"
        + head
        + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "length and chunks": b"POST / HTTP/1.1\r\n" + head + both,
        "odd chunks": b"POST / HTTP/1.1\r\n"
        + head
        + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "blank before colon": b"GET / HTTP/1.1\r\n" + head + b"X-A : 1\r\n\r\n",
        "folded line": b"GET / HTTP/1.1\r\n" + head + b"X-A: 1\r\n 2\r\n\r\n",
        "large header": b"GET / HTTP/1.1\r\n" + head + b"X-A: " + b"x" * 100_000 + b"\r\n\r\n",
        "large cookie": b"GET / HTTP/1.1\r\n" + head + b"Cookie: " + b"x" * 100_000 + b"\r\n\r\n",
        "two hosts": b"GET / HTTP/1.1\r\nHost: evil.example\r\n" + head + b"\r\n",
        "other host": b"GET / HTTP/1.1\r\nHost: evil.example\r\nCookie: "
        + cookie.encode()
        + b"\r\n\r\n",
        "no host": b"GET / HTTP/1.1\r\nCookie: " + cookie.encode() + b"\r\n\r\n",
        "two sessions": b"GET / HTTP/1.1\r\n" + head + b"Cookie: " + cookie.encode() + b"\r\n\r\n",
        "no http": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    }.items():
        answer = await raw(url, request)
        assert b"200 OK" not in answer.split(b"\r\n")[0], (name, answer[:300])
        assert b"smuggled" not in answer, name


async def test_strangers_without_end_keep_nobody_out(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    url = await sign_in(web, cluster.client, (await cluster.start_task()).id)
    port = urlsplit(url).port
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(STRANGERS + 20)]
    assert await status(web, url) == 200
    async with asyncio.timeout(10):
        for reader, _ in idle[:20]:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
    assert not any(reader.at_eof() for reader, _ in idle[-20:])
    for _, writer in idle:
        writer.transport.abort()


async def test_an_answer_that_breaks_off_looks_cut(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    url = await sign_in(web, cluster.client, (await cluster.start_task()).id)
    netloc, cookie = urlsplit(url).netloc, cookie_of(web, url)
    head = f"GET /cut HTTP/1.1\r\nHost: {netloc}\r\nCookie: {cookie}\r\nAccept: text/html\r\n\r\n"
    answer = await raw(url, head.encode())
    assert b"transfer-encoding: chunked" in answer.lower()
    assert not answer.endswith(b"0\r\n\r\n")  # a reset may lose the data before it


async def test_paths_are_not_walked(cluster: ServiceCluster, web: aiohttp.ClientSession) -> None:
    """Paths with `..` and the like reach the service unchanged."""
    url = await sign_in(web, cluster.client, (await cluster.start_task()).id)
    netloc, cookie = urlsplit(url).netloc, cookie_of(web, url)
    for path in ("/../../etc/passwd", "/%2e%2e/x", "//evil.example/x", "/a/./b//c"):
        head = f"GET {path} HTTP/1.1\r\nHost: {netloc}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        answer = await raw(url, head.encode())
        assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["path"] == path


async def test_an_absolute_address_in_the_request_line_is_no_way_out(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    url = await sign_in(web, cluster.client, (await cluster.start_task()).id)
    netloc, cookie = urlsplit(url).netloc, cookie_of(web, url)
    for target in ("http://evil.example/", f"http://{netloc}/x"):
        head = f"GET {target} HTTP/1.1\r\nHost: {netloc}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        assert b" 200 OK" not in (await raw(url, head.encode())).split(b"\r\n")[0]


async def test_while_it_waits_the_page_says_why_and_becomes_the_service(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    task = await cluster.start_task(save_within=0.1, ack_within=0.1)
    url = await sign_in(web, cluster.client, task.id)
    html = {"Accept": "text/html"}
    await cluster.client.tasks.suspend(task.id, hold=True)
    await cluster.wait_until(task.id, lambda t: t.state != TASK_STATE_RUNNING)
    async with web.get(url, headers=html) as answer:
        page = await answer.text()
        assert answer.status == 503
        assert "Stopped" in page
        assert f"hai container start {task.id}" in page
    async with web.get(url, headers={**html, "Accept-Language": "zh-CN"}) as answer:
        assert "已停止" in await answer.text()
    async with web.get(f"{url}.hai/events?service=web") as events:
        assert (await _event(events))["key"] == "away"
        await cluster.client.tasks.resume(task.id)
        while not (state := await _event(events))["ready"]:
            assert state["key"] in ("waiting", "starting")
    assert await status(web, url) == 200


async def _event(events: aiohttp.ClientResponse) -> dict[str, Any]:
    async for line in events.content:
        if line.startswith(b"data: "):
            found: dict[str, Any] = json.loads(line[6:])
            return found
    raise AssertionError("the events ended")


async def test_a_name_is_only_text_on_the_page(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    task = await cluster.start_task(
        "</script><img src=x onerror=alert>", save_within=0.1, ack_within=0.1
    )
    url = await sign_in(web, cluster.client, task.id)
    await cluster.client.tasks.suspend(task.id, hold=True)
    await cluster.wait_until(task.id, lambda t: t.state != TASK_STATE_RUNNING)
    async with web.get(url, headers={"Accept": "text/html"}) as answer:
        page = await answer.text()
    assert "<img" not in page
    assert "&lt;/script&gt;&lt;img" in page


async def test_a_service_that_died_is_told_and_started_again(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    from hai.v1.container_pb2 import SERVICE_ACTION_START, SERVICE_ACTION_STOP

    task = await cluster.start_task()
    url = await sign_in(web, cluster.client, task.id)
    await cluster.client.containers.control(task.id, "web", SERVICE_ACTION_STOP)
    async with web.get(url, headers={"Accept": "text/html"}) as answer:
        assert answer.status == 503
        assert "It does not answer" in await answer.text()
    await cluster.client.containers.control(task.id, "web", SERVICE_ACTION_START)
    assert await status(web, url) == 200


async def test_a_reader_that_does_not_read_costs_no_memory(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    import psutil

    url = await sign_in(web, cluster.client, (await cluster.start_task()).id)
    netloc, cookie = urlsplit(url).netloc, cookie_of(web, url)
    request = (
        f"GET /large?pieces=4000 HTTP/1.1\r\nHost: {netloc}\r\nCookie: {cookie}\r\n\r\n".encode()
    )
    lazy = [await asyncio.open_connection("127.0.0.1", urlsplit(url).port) for _ in range(8)]
    before = psutil.Process().memory_info().rss
    for _, writer in lazy:
        writer.write(request)
    await asyncio.sleep(2)
    grown = psutil.Process().memory_info().rss - before
    assert grown < 30 * 1024 * 1024  # of 2 GB
    for _, writer in lazy:
        writer.transport.abort()


async def test_sessions_and_tasks_outlive_the_server(
    tmp_path: Path, web: aiohttp.ClientSession
) -> None:
    """WebSockets are closed with the code for a restart. The address and the session stay valid."""
    from tests.support.servers import running_server

    async with process_service_cluster(tmp_path) as cluster:
        task: Task = await cluster.start_task()
        url = await sign_in(web, cluster.client, task.id)
        socket = await web.ws_connect(url.replace("http:", "ws:"))
        _, answers = cluster.client.tunnels.shell(task.id, ["sleep", "1000"])
        assert (await anext(answers)).HasField("opened")
        receiving = asyncio.ensure_future(socket.receive())
        await cluster.server.app.stop()
        assert (await receiving).data == 1012
        with pytest.raises(Exception, match=r"leaving|reach|lead|closed"):
            async for _ in answers:
                pass
        async with running_server(tmp_path / "home", nodes=2) as again:
            await cluster.wait_ready_on(again, task.id)
            assert await status(web, url) == 200


async def test_without_wildcard_names_tasks_are_paths(
    tmp_path: Path, web: aiohttp.ClientSession
) -> None:
    async with process_service_cluster(tmp_path, http_paths=True) as cluster:
        one, two = await cluster.start_task("one"), await cluster.start_task("two")
        url = await sign_in(web, cluster.client, one.id)
        assert url.endswith(f"/t/{one.id}/main/")
        told = await echoed(web, f"{url}x?y")
        assert told["path"] == f"/t/{one.id}/main/x?y"
        other = url.replace(f"/t/{one.id}/", f"/t/{two.id}/")
        assert await status(web, other) == 401
        assert await status(web, other, headers={"Cookie": cookie_of(web, url)}) == 401
        assert await status(web, url.replace("/t/", "/x/")) == 404
        async with web.ws_connect(url.replace("http:", "ws:")) as socket:
            await socket.send_str("hello")
            assert await socket.receive_str() == "hello"
