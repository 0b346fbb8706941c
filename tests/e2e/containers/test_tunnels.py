"""Tunnels into ranks, through a real server and real agents: shells, ports, permissions, and what ends a tunnel."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hai.client.client import Client
from hai.client.errors import (
    Conflict,
    Denied,
    HaiError,
    Invalid,
    NotFound,
    Unauthenticated,
    UsageError,
)
from hai.client.profile import Profile
from hai.v1.tunnel_pb2 import TerminalSize, TunnelTarget
from hai_backend.api.server.forwarding import LeaderRoute
from hai_backend.api.server.router import Router
from hai_backend.api.server.server import Endpoint, build_server
from hai_backend.launch import processes
from hai_backend.proxy.listener import Listener, forward_to
from hai_tui.cli.tunnels import forwarding
from tests.support.service_cluster import CLUSTERS, ServiceCluster, browser

BIG = 8 * 1024 * 1024


@pytest.fixture(params=CLUSTERS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ServiceCluster]:
    async with request.param(tmp_path) as made:
        yield made


async def said(answers: Any) -> tuple[bytes, bytes, int | None]:
    """Return the output of a tunnel: stdout, stderr and exit code."""
    out, error, code = b"", b"", None
    async for answer in answers:
        out += answer.data
        error += answer.error_data
        if answer.HasField("exit_code"):
            code = answer.exit_code
    return out, error, code


async def run(
    cluster: ServiceCluster, id: int, *command: str, stdin: bytes = b""
) -> tuple[bytes, bytes, int | None]:
    tunnel, answers = cluster.client.tunnels.shell(id, command)
    sending = asyncio.ensure_future(_feed(tunnel, stdin))
    try:
        return await said(answers)
    finally:
        sending.cancel()


async def _feed(tunnel: Any, data: bytes) -> None:
    await tunnel.send(data)
    await tunnel.end()


async def test_a_command_runs_in_the_programs_surroundings(cluster: ServiceCluster) -> None:
    task = await cluster.start_task()
    script = 'echo "$HAI_TASK_ID $RANK"; pwd; echo oops >&2; exit 7'
    out, error, code = await run(cluster, task.id, "sh", "-c", script)
    scratch = cluster.rank_directory(f"{task.id}-1-0") / "scratch"
    assert (out, error, code) == (f"{task.id} 0\n{scratch}\n".encode(), b"oops\n", 7)


async def test_a_shell_finds_the_programs_of_the_environment(cluster: ServiceCluster) -> None:
    """A login shell reads /etc/profile, which sets PATH anew."""
    task = await cluster.start_task()
    path, _, _ = await run(cluster, task.id, "sh", "-c", 'echo "$PATH"')
    assert (await run(cluster, task.id, stdin=b'echo "$PATH"\n'))[0] == path


async def test_bytes_pass_unchanged_and_all_of_them(cluster: ServiceCluster) -> None:
    task = await cluster.start_task()
    data = bytes(range(256)) * (BIG // 256)
    out, _, code = await run(cluster, task.id, "cat", stdin=data)
    assert (hashlib.sha256(out).digest(), code) == (hashlib.sha256(data).digest(), 0)


async def test_a_terminal_knows_its_size_and_hears_when_it_changes(cluster: ServiceCluster) -> None:
    task = await cluster.start_task()
    size = TerminalSize(columns=100, rows=30)
    tunnel, answers = cluster.client.tunnels.shell(
        task.id,
        ["sh", "-c", "stty size; read x; stty size; tty; echo $TERM"],
        terminal=size,
        term="vt100",
    )
    assert (await anext(answers)).HasField("opened")
    assert b"30 100" in (await anext(answers)).data
    await tunnel.resize(TerminalSize(columns=80, rows=24))
    await tunnel.send(b"go\n")
    out, _, code = await said(answers)
    assert b"24 80" in out
    assert b"/dev/pts/" in out
    assert b"vt100" in out
    assert code == 0


async def test_ctrl_c_reaches_what_runs_in_the_terminal(cluster: ServiceCluster) -> None:
    task = await cluster.start_task()
    tunnel, answers = cluster.client.tunnels.shell(
        task.id,
        ["sh", "-c", "echo on; exec sleep 1000"],
        terminal=TerminalSize(columns=80, rows=24),
    )
    assert (await anext(answers)).HasField("opened")
    assert b"on" in (await anext(answers)).data
    await tunnel.send(b"\x03")
    assert (await said(answers))[2] == 128 + 2


async def test_a_shell_ends_with_its_tunnel(cluster: ServiceCluster) -> None:
    task = await cluster.start_task()
    _, answers = cluster.client.tunnels.shell(task.id, ["sh", "-c", "echo $$; sleep 1000"])
    assert (await anext(answers)).HasField("opened")
    pid = int((await anext(answers)).data)
    await answers.aclose()
    for _ in range(100):
        if processes.read_process(pid) is None:
            return
        await asyncio.sleep(0.05)  # there is no event for the end of another process
    raise AssertionError("it lives on")


async def test_a_shell_ends_with_the_task(cluster: ServiceCluster) -> None:
    task = await cluster.start_task(ack_within=0.1)
    _, answers = cluster.client.tunnels.shell(task.id, ["sh", "-c", "echo $$; sleep 1000"])
    assert (await anext(answers)).HasField("opened")
    pid = int((await anext(answers)).data)
    await cluster.client.tasks.stop(task.id)
    with pytest.raises(HaiError):
        await said(answers)
    await cluster.client.tasks.wait(task.id, timeout=30)
    assert processes.read_process(pid) is None


async def test_a_port_and_a_service_of_a_rank(cluster: ServiceCluster) -> None:
    task = await cluster.start_task()
    port = (await cluster.client.containers.get(task.id)).services[0].port
    for target in (TunnelTarget(port=port), TunnelTarget(service="web")):
        tunnel, answers = cluster.client.tunnels.open(task.id, target)
        await tunnel.send(b"GET /x HTTP/1.0\r\n\r\n")
        out, _, _ = await said(_until_end(answers))
        assert out.startswith(b"HTTP/1.0 200 OK")


async def _until_end(answers: Any) -> AsyncIterator[Any]:
    async for answer in answers:
        yield answer
        if answer.HasField("end"):
            return


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        pytest.param(TunnelTarget(port=1), Conflict, "nothing listens on port 1", id="closed port"),
        pytest.param(TunnelTarget(service="x"), Conflict, "no service x", id="no such service"),
        pytest.param(TunnelTarget(port=70000), Invalid, "1-65535", id="no port"),
        pytest.param(TunnelTarget(), Invalid, "is required", id="nowhere"),
    ],
)
async def test_what_cannot_be_reached_is_said(
    cluster: ServiceCluster, target: TunnelTarget, error: type[HaiError], message: str
) -> None:
    task = await cluster.start_task()
    _, answers = cluster.client.tunnels.open(task.id, target)
    with pytest.raises(error, match=message):
        await anext(answers)


async def test_what_cannot_work_is_told_before_a_port_leads_there(cluster: ServiceCluster) -> None:
    """A local port is not opened if nothing listens on the rank, or if it would forward to itself."""
    task, told = await cluster.start_task(), list[str]()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        free = closed.getsockname()[1]

    async def serve(forward: forwarding.Forward) -> None:
        listening = asyncio.Event()
        work = [
            asyncio.ensure_future(
                forwarding.forward_ports(
                    cluster.client,
                    task.id,
                    0,
                    "127.0.0.1",
                    [forward],
                    lambda forward, port: listening.set(),
                    lambda error: told.append(str(error)),
                )
            ),
            asyncio.ensure_future(listening.wait()),
        ]
        done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        for each in work:
            each.cancel()
        await done.pop()

    await serve(forwarding.Forward(0, free))
    assert told == [f"nothing listens on port {free} of rank 0 yet"]
    with pytest.raises(UsageError, match=f"is localhost:{free} as it is"):
        await serve(forwarding.Forward(free, free))


async def test_others_get_nowhere(cluster: ServiceCluster) -> None:
    private, shared = (
        await cluster.start_task(),
        await cluster.start_task("shared", shared_in_group=True),
    )
    async with await cluster.create_user_client("eve", "lab") as eve:
        assert cluster.server.app.leader is not None
        directory = cluster.server.app.leader.directory
        admin = directory.user("admin")
        await directory.update_user(type(admin)(admin.name, admin.role, ("lab",)))
        for id, error in ((private.id, NotFound), (shared.id, Denied)):
            for target in (TunnelTarget(port=22), TunnelTarget(service="web")):
                with pytest.raises(error):
                    await anext(eve.tunnels.open(id, target)[1])
            with pytest.raises(error):
                await anext(eve.tunnels.shell(id, ["id"])[1])


async def test_a_revoked_token_closes_what_it_has_opened(cluster: ServiceCluster) -> None:
    """This includes a tunnel that carries no data at the moment."""
    task = await cluster.start_task()
    assert cluster.server.app.leader is not None
    directory = cluster.server.app.leader.directory
    _, answers = cluster.client.tunnels.shell(task.id, ["sleep", "1000"])
    assert (await anext(answers)).HasField("opened")
    await directory.revoke_token(1)
    with pytest.raises(Unauthenticated, match="revoked"):
        await anext(answers)
    assert cluster.server.app.leader.tunnels.count == 0


async def test_a_reader_that_does_not_read_stops_the_writer(cluster: ServiceCluster) -> None:
    """Neither the server nor the agent buffers without limit."""
    task = await cluster.start_task()
    endless = "import os\nn = 0\nwhile True:\n  n += os.write(1, b'x' * 65536)\n  open('n', 'w').write(str(n))\n"
    _, answers = cluster.client.tunnels.shell(task.id, ["python3", "-c", endless])
    assert (await anext(answers)).HasField("opened")
    count = cluster.rank_directory(f"{task.id}-1-0") / "scratch" / "n"
    seen = [0]
    while seen[-1] == 0 or len(set(seen[-6:])) > 1:  # until the count stays the same
        await asyncio.sleep(0.25)
        seen.append(int(count.read_text() or 0) if count.exists() else 0)
        assert seen[-1] < 16 * 1024 * 1024
    await answers.aclose()


async def test_each_opening_is_audited(cluster: ServiceCluster) -> None:
    task = await cluster.start_task()
    await run(cluster, task.id, "true")
    assert cluster.server.app.leader is not None
    rows = (await cluster.server.app.leader.store.audit()).rows
    mine = [(r.actor, r.what, r.code) for r in rows if r.method == "OpenTunnel"]
    what = f"task={task.id} rank=0 shell=['true']"
    assert sorted(mine) == [("admin", what, "OK"), ("admin", what, "OPENED")]


async def test_too_many_tunnels_are_refused(cluster: ServiceCluster) -> None:
    task = await cluster.start_task()
    assert cluster.server.app.leader is not None
    tunnels = cluster.server.app.leader.tunnels
    tunnels._per_user["admin"] = 64
    with pytest.raises(HaiError, match="64 open tunnels"):
        await anext(cluster.client.tunnels.shell(task.id, ["true"])[1])


async def test_a_follower_passes_tunnels_and_browsers_on(cluster: ServiceCluster) -> None:
    """The client and the browser use a server that is not the leader."""
    task = await cluster.start_task()
    router, door = Router(), Listener("127.0.0.1", 0)
    follower = build_server(Endpoint("127.0.0.1:0"), router)
    await follower.start()
    leader = LeaderRoute(cluster.server.profile.server, None)
    router.route_to(leader)
    opened = await cluster.client.containers.open(task.id)
    port = int(opened.url.rpartition(":")[2].rstrip("/"))
    door.set_receiver(forward_to("127.0.0.1", port, "127.0.0.2"))
    door.open()
    profile = Profile("follower", follower.address, cluster.server.profile.token)
    async with Client(profile) as client, browser() as web:
        tunnel, answers = client.tunnels.shell(task.id, ["sh", "-c", "cat; exit 5"])
        sending = asyncio.ensure_future(_feed(tunnel, b"x" * 3_000_000))
        out, _, code = await said(answers)
        await sending
        assert (len(out), code) == (3_000_000, 5)
        with pytest.raises(NotFound):
            await anext(client.tunnels.shell(999, ["true"])[1])
        there = f":{door.address.rpartition(':')[2]}/"
        link = opened.link.replace(f":{port}/", there)
        async with web.get(link, allow_redirects=False) as answer:
            assert answer.status == 303
        url = opened.url.replace(f":{port}/", there)
        async with web.get(f"{url}large?pieces=50") as answer:
            assert len(await answer.read()) == 50 * 65536
        async with web.ws_connect(url.replace("http:", "ws:")) as socket:
            await socket.send_str("hello")
            assert await socket.receive_str() == "hello"
    door.close()
    await leader.close()
    await follower.stop(0)
