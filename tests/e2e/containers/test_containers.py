"""Dev containers with a real JupyterLab: opened by the proxy, suspended with notice, resumed at the same address."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hai.client.client import Client
from hai.client.errors import Conflict, Invalid, Unauthenticated
from hai.client.profile import Profile
from hai.v1.container_pb2 import SERVICE_ACTION_RESTART
from hai.v1.task_pb2 import (
    RUN_STATE_ENDED,
    RUN_STATE_RUNNING,
    RUN_STATE_TERMINATING,
    TASK_STATE_FINISHED,
    TASK_STATE_RUNNING,
    TASK_STATE_SUSPENDED,
    Task,
)
from hai.v1.task_spec_pb2 import OptionsSpec, ProgramSpec, ResourceSpec, ServiceSpec, TaskSpec
from tests.support.kernels import execute, kernel, printed
from tests.support.servers import running_server
from tests.support.service_cluster import (
    CLUSTERS,
    ServiceCluster,
    origin_of,
    process_service_cluster,
    sign_in,
)

pytest.importorskip("jupyterlab")
GRACE = 1.5
MARGIN = 2.0
_LEAVING = (RUN_STATE_TERMINATING, RUN_STATE_ENDED)


@pytest.fixture(params=CLUSTERS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ServiceCluster]:
    async with request.param(tmp_path) as made:
        yield made


def spec(
    name: str = "lab", *, spot: bool = False, jupyter: bool = True, **options: Any
) -> TaskSpec:
    """Return the specification of a dev container. Without JupyterLab, the container starts at once."""
    return TaskSpec(
        version=2,
        name=name,
        task_type="jupyter",
        spec=ProgramSpec(entrypoint="sleep", parameters=["infinity"], entrypoint_executable=True),
        resource=ResourceSpec(is_spot=spot),
        services=[ServiceSpec(name="jupyter")] if jupyter else [],
        options=OptionsSpec(**{"save_within": GRACE + MARGIN, **options}),
    )


async def created(cluster: ServiceCluster, **more: Any) -> Task:
    task = await cluster.client.tasks.create(spec(**more))
    await cluster.wait_until(task.id, lambda t: t.run.state == RUN_STATE_RUNNING)
    await _until_open(cluster, task)
    return task


def home_of(cluster: ServiceCluster, task: Task) -> Path:
    return cluster.home / "containers" / str(task.id)


async def shell(cluster: ServiceCluster, task: Task, script: str) -> str:
    _, answers = cluster.client.tunnels.shell(task.id, ["sh", "-c", script])
    return b"".join([a.data async for a in answers]).decode()


async def test_lab_works_through_the_proxy(
    cluster: ServiceCluster, web: aiohttp.ClientSession
) -> None:
    """Pages, XSRF protection, contents, a busy kernel over a WebSocket, and then a restart of JupyterLab."""
    task = await cluster.client.tasks.create(spec())
    url = await sign_in(web, cluster.client, task.id)
    headers = await _lab(cluster, web, task, url)
    async with web.put(f"{url}api/contents/a.txt", json=_text("hello"), headers=headers) as saved:
        assert saved.status == 201
    async with web.put(f"{url}api/contents/b.txt", json=_text("hello")) as refused:
        assert refused.status == 403
    assert (home_of(cluster, task) / "a.txt").read_text() == "hello"
    async with kernel(web, url, headers) as socket:
        await socket.send_json(execute("print(6 * 7); import time; time.sleep(2)"))
        assert await printed(socket) == "42\n"
        async with web.get(f"{url}api/kernels") as answer:
            assert [k["execution_state"] for k in await answer.json()] == ["busy"]
    found = await cluster.client.containers.control(task.id, "jupyter", SERVICE_ACTION_RESTART)
    assert [s.starts for s in found.services] == [2]
    await cluster.wait_ready(task.id, "jupyter")
    async with web.get(f"{url}api/status") as answer:
        assert answer.status == 200


async def _lab(
    cluster: ServiceCluster, web: aiohttp.ClientSession, task: Task, url: str
) -> dict[str, str]:
    """Load the page of JupyterLab once it is ready, and return the headers that its requests carry."""
    await cluster.wait_ready(task.id, "jupyter")
    async with web.get(f"{url}lab") as page:
        assert page.status == 200
        assert "jupyter-config-data" in await page.text()
    xsrf = next(c.value for c in web.cookie_jar if c.key == "_xsrf")
    return {"X-XSRFToken": xsrf, "Origin": origin_of(url)}


async def test_lab_works_below_a_path(tmp_path: Path, web: aiohttp.ClientSession) -> None:
    """Without wildcard host names, base_url, the XSRF cookie and a kernel's WebSocket work below a path."""
    async with process_service_cluster(tmp_path, http_paths=True) as cluster:
        task = await cluster.client.tasks.create(spec())
        url = await sign_in(web, cluster.client, task.id)
        assert url.endswith(f"/t/{task.id}/main/")
        headers = await _lab(cluster, web, task, url)
        async with kernel(web, url, headers) as socket:
            await socket.send_json(execute("print('below a path')"))
            assert await printed(socket) == "below a path\n"
        async with web.get(url, allow_redirects=False) as top:
            assert top.headers["Location"].startswith(f"/t/{task.id}/main/lab")


@pytest.mark.timeout(240)
async def test_it_is_put_away_when_nobody_uses_it_and_not_while_a_kernel_works(
    tmp_path: Path, web: aiohttp.ClientSession
) -> None:
    """The agent looks every 10 s: at least once in the second half of what the cell takes."""
    async with process_service_cluster(tmp_path) as cluster:
        task = await cluster.client.tasks.create(spec(idle_timeout=10))
        url = await sign_in(web, cluster.client, task.id)
        headers = await _lab(cluster, web, task, url)
        async with web.put(f"{url}api/contents/a.txt", json=_text("kept"), headers=headers) as made:
            assert made.status == 201
        async with kernel(web, url, headers) as socket:
            await socket.send_json(execute("import time; time.sleep(22); print('done')"))
            assert await printed(socket) == "done\n"
            done = time.time()
            away = await cluster.wait_until(task.id, lambda t: t.state == TASK_STATE_SUSPENDED)
        assert time.time() - done >= 10
        assert away.held
        assert "nobody has used it" in away.reason
        async with web.get(url) as page:
            assert page.status == 503
        await cluster.client.tasks.resume(task.id)
        await cluster.wait_ready(task.id, "jupyter")
        async with web.get(f"{url}api/contents/a.txt") as file:
            assert (await file.json())["content"] == "kept"


def _text(content: str) -> dict[str, str]:
    return {"type": "file", "format": "text", "content": content}


async def test_reclaim_gives_notice_and_the_container_returns(cluster: ServiceCluster) -> None:
    """A spot container whose node is needed runs until the grace ends. It returns with its files and address."""
    container = await created(cluster, name="spot", spot=True, jupyter=False)
    other = await created(cluster, name="other", spot=True, jupyter=False)
    url = (await cluster.client.containers.get(container.id)).url
    await shell(cluster, container, "echo kept > file")
    urgent = await cluster.client.tasks.create(
        TaskSpec(
            version=2,
            name="urgent",
            priority=50,
            spec=ProgramSpec(entrypoint="true", entrypoint_executable=True),
            resource=ResourceSpec(node_count=2),
        )
    )
    said = await _notice(cluster, container)
    gone = await cluster.wait_until(container.id, lambda t: t.run.state in _LEAVING)
    lasted = time.time() - said["given_at"]
    assert said["kind"] == "reclaim"
    assert str(urgent.id) in said["reason"] or "urgent" in said["reason"]
    assert said["ends_at"] - said["given_at"] == pytest.approx(GRACE)
    assert GRACE <= lasted < GRACE + MARGIN
    assert gone.id == container.id
    assert (await cluster.client.tasks.wait(urgent.id, timeout=60)).state == TASK_STATE_FINISHED
    for each in (container, other):
        back = await cluster.wait_until(
            each.id, lambda t: t.run_count == 2 and t.state == TASK_STATE_RUNNING
        )
        assert back.suspend_count == 1
    await _until_open(cluster, container)
    assert await shell(cluster, container, "cat file") == "kept\n"
    assert (await cluster.client.containers.get(container.id)).url == url


async def _notice(cluster: ServiceCluster, task: Task) -> dict[str, Any]:
    """Return the notice file, as programs in the container read it."""
    wait = 'until [ -e "$HAI_NOTICE_FILE" ]; do sleep 0.02; done; cat "$HAI_NOTICE_FILE"'
    found: dict[str, Any] = json.loads(await shell(cluster, task, wait))
    return found


async def _until_open(cluster: ServiceCluster, task: Task) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await shell(cluster, task, "true")
                return
            except Conflict:
                await asyncio.sleep(0.1)


async def test_its_owner_need_not_be_warned(cluster: ServiceCluster) -> None:
    """`hai container stop` does not wait for the grace period once a program in the container has reported `saved`."""
    container = await created(cluster, jupyter=False, save_within=60.0)
    program = cluster.directory / "panel.py"
    program.write_text(_PANEL)
    watching = asyncio.ensure_future(shell(cluster, container, f"python3 {program} > said"))
    await shell(cluster, container, "until [ -e said ]; do sleep 0.02; done")
    began = time.monotonic()
    await cluster.client.tasks.suspend(container.id, hold=True)
    await cluster.wait_until(container.id, lambda t: t.state == TASK_STATE_SUSPENDED)
    assert time.monotonic() - began < 10
    await asyncio.wait({watching})
    assert watching.exception() is None or "ended" in str(watching.exception())
    assert (home_of(cluster, container) / "said").read_text().startswith("stop\n")


_PANEL = """
import json, os, socket, time
while not os.path.exists(os.environ["HAI_NOTICE_FILE"]):
    time.sleep(0.02)
print(json.load(open(os.environ["HAI_NOTICE_FILE"]))["kind"], flush=True)
agent = socket.socket(socket.AF_UNIX)
agent.connect(os.environ["HAI_AGENT_SOCKET"])
agent.sendall(b'{"call": "saved"}\\n')
print(agent.recv(99).decode(), end="", flush=True)
"""


async def test_a_lifetime_ends_and_is_renewed(cluster: ServiceCluster) -> None:
    container = await created(cluster, jupyter=False, lifetime=3)
    first = await cluster.client.containers.get(container.id)
    assert first.HasField("ends_at")
    await asyncio.sleep(1.0)
    renewed = await cluster.client.containers.renew(container.id)
    assert renewed.ends_at.ToMilliseconds() >= first.ends_at.ToMilliseconds() + 900
    away = await cluster.wait_until(container.id, lambda t: t.state == TASK_STATE_SUSPENDED)
    assert away.held
    assert "lifetime of 3 s is over" in away.reason
    assert time.time() >= renewed.ends_at.ToMilliseconds() / 1000 + GRACE
    await cluster.client.tasks.resume(container.id)
    await cluster.wait_until(
        container.id, lambda t: t.state == TASK_STATE_RUNNING and t.run_count == 2
    )


async def test_deleting_ends_it_and_removes_its_files(cluster: ServiceCluster) -> None:
    gone, kept = (
        await created(cluster, jupyter=False),
        await created(cluster, name="kept", jupyter=False),
    )
    assert home_of(cluster, gone).is_dir()
    await cluster.client.containers.delete(gone.id)
    await cluster.client.containers.delete(kept.id, keep_files=True)
    assert not home_of(cluster, gone).exists()
    assert home_of(cluster, kept).is_dir()
    assert (await cluster.client.tasks.get(gone.id)).state == TASK_STATE_FINISHED
    with pytest.raises(Conflict, match="is not a dev container"):
        await cluster.client.containers.delete((await cluster.start_task()).id)


async def test_the_platform_is_there_inside_and_only_for_this_run(cluster: ServiceCluster) -> None:
    """In a container, `hai` acts as the owner. No variable contains the token, and the token is invalid afterwards."""
    container = await created(cluster, jupyter=False)
    assert '"admin"' in await shell(cluster, container, "hai whoami --json")
    assert await shell(cluster, container, 'stat -c %a "$HAI_CONFIG"') == "600\n"
    written = await shell(cluster, container, 'cat "$HAI_CONFIG"')
    token = written.split('token = "')[1].split('"')[0]
    assert token not in await shell(cluster, container, "env")
    await cluster.client.tasks.suspend(container.id, hold=True)
    await cluster.wait_until(container.id, lambda t: t.state == TASK_STATE_SUSPENDED)
    async with Client(Profile("old", cluster.server.profile.server, token)) as old:
        with pytest.raises(Unauthenticated, match="does not accept the token"):
            await old.users.whoami()


async def test_of_many_that_are_asked_for_at_once_no_more_come_than_a_user_may_have(
    tmp_path: Path,
) -> None:
    async with (
        running_server(tmp_path / "home", containers_per_user=2) as server,
        Client(server.profile) as client,
    ):
        asked = (client.tasks.create(spec("one", jupyter=False), request_id="r") for _ in range(5))
        assert len({task.id for task in await asyncio.gather(*asked)}) == 1
        others = (client.tasks.create(spec(f"b{i}", jupyter=False)) for i in range(5))
        made = await asyncio.gather(*others, return_exceptions=True)
        assert sum(isinstance(task, Task) for task in made) == 1
        refused = [error for error in made if isinstance(error, Invalid)]
        assert len(refused) == 4
        assert "2 is the limit" in str(refused[0])
