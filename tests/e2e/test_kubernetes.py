"""What only happens in a cluster: rendezvous of pods, pods deleted by others, bad images, lost nodes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import tomli_w

from hai.client.client import Client
from hai.v1.task_pb2 import TaskOutcome
from hai_backend.launch import processes
from hai_backend.launch.kubernetes import launcher
from hai_backend.launch.kubernetes.nodes import Timeouts
from tests.support.agent_pods import process_pod_cluster
from tests.support.deployment import (
    Deployment,
    DeploymentFactory,
    kubernetes_settings,
    pod_deployment,
)
from tests.support.real_cluster import (
    REQUIRED_VARIABLES,
    real_cluster_configured,
    real_cluster_deployment,
)
from tests.support.servers import ServerProcess, running_server

SUCCEEDED = TaskOutcome.TASK_OUTCOME_SUCCEEDED
REAL = pytest.mark.skipif(
    not real_cluster_configured(), reason=f"{' and '.join(REQUIRED_VARIABLES)} are not set"
)
PLACES = [
    pytest.param(pod_deployment, id="pods"),
    pytest.param(real_cluster_deployment, id="cluster", marks=[pytest.mark.k8s, REAL]),
]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> DeploymentFactory:
    made: DeploymentFactory = request.param
    return made


@pytest.fixture
async def here(place: DeploymentFactory, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with place(tmp_path) as made:
        yield made


MEETING = """
import os, socket
address = os.environ["MASTER_IP"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.create_server(("", address[1])) as server:
        other, _ = server.accept()
        print("heard", other.makefile().readline().strip(), flush=True)
else:
    import time
    for _ in range(100):
        try:
            with socket.create_connection(address) as master:
                master.sendall(b"rank 1\\n")
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
"""

COUNTING = """
import os, pathlib, time, hai
path = pathlib.Path(os.environ["HAI_CHECKPOINT_DIR"], "count")
i = int(path.read_text()) if path.exists() else 0
print("from", i, flush=True)
while i < 150:
    if hai.receive_suspend_command() and os.environ["RANK"] == "0":
        path.write_text(str(i))
        hai.go_suspend()
    i += 1
    if i == 5:
        print("five", os.environ["RANK"], flush=True)
    time.sleep(0.02)
"""

DEAF = """
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
run, began = os.environ["HAI_RUN"], time.time()
print("run", run, flush=True)
with open(pathlib.Path(os.environ["HAI_CHECKPOINT_DIR"], run), "a") as ticks:
    while time.time() < began + (60 if run == "1" else 0.5):
        print(time.time(), file=ticks, flush=True)
        time.sleep(0.05)
"""

LASTING = "import time\nprint('running', flush=True)\ntime.sleep(60)"


async def test_ranks_meet_at_the_address_of_a_pod(here: Deployment) -> None:
    task = await here.run(here.spec("meeting", MEETING, nodes=2))
    assert task.outcome == SUCCEEDED
    assert await here.lines(task.id) == ["heard rank 1"]


async def test_the_way_to_a_real_cluster_is_tried_on_the_fake_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with process_pod_cluster(tmp_path, 2) as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        monkeypatch.setenv("HAI_E2E_IMAGE", "any/image:1")
        async with real_cluster_deployment(tmp_path) as here:
            task = await here.run(here.spec("meeting", MEETING, nodes=2))
            assert task.outcome == SUCCEEDED
            await here.client.tasks.create(here.spec("lasting", LASTING))
        assert not cluster.objects("pods", "default")


async def test_a_suspended_task_goes_on_from_its_checkpoint(here: Deployment) -> None:
    low = await here.client.tasks.create(here.spec("low", COUNTING, nodes=2, priority=0))
    await here.until_printed(low.id, "five 0")
    await here.until_printed(low.id, "five 1")
    high = await here.run(here.spec("high", "print('urgent')", nodes=2, priority=30))
    assert high.outcome == SUCCEEDED
    low = await here.client.tasks.wait(low.id, timeout=60)
    assert (low.outcome, low.run_count) == (SUCCEEDED, 2)
    starts = sorted(int(s.split()[1]) for s in await here.lines(low.id) if s.startswith("from"))
    assert starts[:2] == [0, 0]
    assert starts[2] == starts[3] >= 4


async def test_the_log_is_whole_to_its_last_line(here: Deployment) -> None:
    code = "for i in range(3000):\n    print('line', i)\nprint('the end', end='')"
    task = await here.run(here.spec("talking", code))
    expected = [*(f"line {i}" for i in range(3000)), "the end"]
    assert await here.lines(task.id) == expected


async def test_nothing_of_a_run_is_left_in_the_cluster(here: Deployment) -> None:
    task = await here.run(here.spec("short", "print('done')", nodes=2))
    assert task.outcome == SUCCEEDED
    await here.hands.wait_until_empty()


async def test_a_pod_that_somebody_deletes_saves_and_the_task_goes_on_elsewhere(
    here: Deployment,
) -> None:
    task = await here.client.tasks.create(here.spec("victim", COUNTING, nodes=2))
    await here.until_printed(task.id, "five 0")
    await here.until_printed(task.id, "five 1")
    node = await here.hands.node_of(f"hai-{task.id}-1-1")
    await here.hands.delete(f"hai-{task.id}-1-1")
    task = await here.client.tasks.wait(task.id, timeout=60)
    told = [event.reason for event in await here.client.tasks.events(task.id)]
    assert f"rank 1 on {node} is taken away: somebody deleted its pod" in told
    assert (task.outcome, task.suspend_count, task.run_count) == (SUCCEEDED, 1, 2)
    assert (task.failure_count, task.node_failure_count) == (0, 0)


async def test_a_pod_that_somebody_deletes_by_force_never_runs_beside_its_successor(
    place: DeploymentFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "Timeouts", partial(Timeouts, forced_delete=10.0))
    async with place(tmp_path) as here:
        task = await here.client.tasks.create(here.spec("forced", DEAF))
        await here.until_printed(task.id, "run 1")
        await here.hands.delete(f"hai-{task.id}-1-0", "--force", "--grace-period=0")
        task = await here.client.tasks.wait(task.id, timeout=60)
        assert (task.outcome, task.run_count) == (SUCCEEDED, 2)
        ticks = here.home / "checkpoints" / str(task.id)
        first, second = ((ticks / run).read_text().split() for run in "12")
        assert float(first[-1]) < float(second[0])


async def test_an_image_that_is_not_there_is_told_in_words(
    place: DeploymentFactory, tmp_path: Path
) -> None:
    images = {"default": "registry.invalid/none:1"}
    async with place(tmp_path, {"images": images, "trouble_within": 1.0}) as here:
        task = await here.client.tasks.create(here.spec("imageless", "print('never')"))
        task = await here.client.tasks.wait(task.id, until="suspended", timeout=60)
        assert "image cannot be pulled" in task.reason
        assert "registry.invalid/none:1" in task.reason
        await here.hands.wait_until_empty()


async def test_a_mount_that_fails_is_told_in_words(
    place: DeploymentFactory, tmp_path: Path
) -> None:
    table = {"agent_path": str(tmp_path / "nothing"), "trouble_within": 1.0}
    async with place(tmp_path, table) as here:
        task = await here.client.tasks.create(here.spec("mountless", "print('never')"))
        task = await here.client.tasks.wait(task.id, until="suspended", timeout=60)
        assert "a volume cannot be mounted" in task.reason
        await here.hands.wait_until_empty()


SAVES = """
import os, time, hai
print("run", os.environ["HAI_RUN"], "on", os.environ["HAI_NODE_NAME"], flush=True)
while os.environ["HAI_RUN"] == "1":
    time.sleep(0.05)
    if hai.receive_suspend_command():
        print("saved", flush=True)
        hai.go_suspend()
"""


@pytest.mark.parametrize(
    ("answers", "fence_after"),
    [
        pytest.param(
            True, 600.0, id="its agent answers: the program saves, and no fence is waited for"
        ),
        pytest.param(
            False, 10.0, id="its agent is silent, too: nothing is believed before the fence"
        ),
    ],
)
async def test_a_rank_on_a_lost_node_starts_elsewhere_and_never_beside_itself(
    tmp_path: Path, answers: bool, fence_after: float
) -> None:
    async with process_pod_cluster(tmp_path, 2, node_grace=0.5) as cluster:
        kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
        table = kubernetes_settings(tmp_path, kubeconfig, lost_after=0.5, fence_after=fence_after)
        async with (
            running_server(tmp_path / "home", kubernetes=table, agent_heartbeat=0.2) as server,
            Client(server.profile) as client,
        ):
            here = Deployment(client, tmp_path, tmp_path / "home", tmp_path / "pods")
            task = await client.tasks.create(here.spec("cut-off", SAVES))
            await here.until_printed(task.id, "run 1")
            node = cluster.objects("pods", "default")[0]["spec"]["nodeName"]
            if not answers:
                stop_agents(tmp_path / "pods")
                await until_silent(client, task.id)
            cluster.nodes.partition(node)
            before = asyncio.get_running_loop().time()
            await here.until_printed(task.id, "run 2 on")
            assert answers or asyncio.get_running_loop().time() - before > fence_after
            task = await client.tasks.wait(task.id, timeout=60)
            assert (task.outcome, task.node_failure_count) == (SUCCEEDED, 0 if answers else 1)
            first, *saved, second = await here.lines(task.id)
            assert saved == (["saved"] if answers else [])
            assert first.split()[-1] == node != second.split()[-1]


async def until_silent(client: Client, task_id: int) -> None:
    """Wait until rank 0 is shown as silent."""
    async with asyncio.timeout(30):
        while not (await client.tasks.get(task_id)).run.ranks[0].HasField("silent_since_time"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def stop_agents(pods: Path) -> None:
    """Send SIGSTOP to each agent, but not to its supervisor."""
    for record in pods.glob("**/run/*/agent.pid"):
        supervisor = processes.read_pid_file(record)
        assert supervisor is not None
        for agent in processes.all_processes():
            if agent.parent == supervisor.pid:
                os.kill(agent.pid, signal.SIGSTOP)


async def test_an_agent_without_a_server_ends_its_program(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    async with process_pod_cluster(tmp_path, 1) as cluster:
        kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
        table = kubernetes_settings(tmp_path, kubeconfig, fence_after=3.0)
        (tmp_path / "hai.toml").write_text(tomli_w.dumps({"kubernetes": table}))
        profile = await asyncio.to_thread(server.start)
        async with Client(profile) as client:
            here = Deployment(client, tmp_path, tmp_path, tmp_path / "pods")
            task = await client.tasks.create(here.spec("lonely", LASTING))
            await here.until_printed(task.id, "running")
            await asyncio.to_thread(server.end, signal.SIGKILL)
        await cluster.until(
            lambda: cluster.objects("pods", "default")[0]["status"]["phase"] == "Failed"
        )
        assert here.marked(task.id) == []
