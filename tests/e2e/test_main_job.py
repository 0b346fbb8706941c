"""The main job with a real server in this process, real agents and real programs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import tomli_w

from hai.client.client import Client
from hai.client.errors import Conflict, Invalid
from hai.v1.task_pb2 import TaskOutcome, TaskState
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai_backend.launch import processes
from tests.support.agent_pods import process_pod_cluster
from tests.support.deployment import (
    Deployment,
    DeploymentFactory,
    kubernetes_settings,
    pod_deployment,
    process_deployment,
)
from tests.support.real_cluster import (
    REQUIRED_VARIABLES,
    real_cluster_configured,
    real_cluster_deployment,
)
from tests.support.servers import ServerProcess

SUCCEEDED = TaskOutcome.TASK_OUTCOME_SUCCEEDED
FAILED = TaskOutcome.TASK_OUTCOME_FAILED
FINISHED = TaskState.TASK_STATE_FINISHED
POLITE = """
import sys, time, hai
print("running", flush=True)
for _ in range(int(sys.argv[1])):
    if hai.receive_suspend_command():
        print("saving", flush=True)
        hai.go_suspend()
    time.sleep(0.02)
"""


REAL = pytest.mark.skipif(
    not real_cluster_configured(), reason=f"{' and '.join(REQUIRED_VARIABLES)} are not set"
)
PROCESSES = pytest.param(process_deployment, id="processes")
PODS = pytest.param(pod_deployment, id="pods")
CLUSTER = pytest.param(real_cluster_deployment, id="cluster", marks=[pytest.mark.k8s, REAL])
ON_THIS_MACHINE = pytest.mark.parametrize("place", [PROCESSES, PODS])


@pytest.fixture(params=[PROCESSES, PODS, CLUSTER])
def place(request: pytest.FixtureRequest) -> DeploymentFactory:
    made: DeploymentFactory = request.param
    return made


@pytest.fixture
async def here(place: DeploymentFactory, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with place(tmp_path) as made:
        yield made


async def test_a_gang_runs_with_the_variables_of_a_distributed_program(here: Deployment) -> None:
    code = (
        "import os\nprint(*(os.environ[k] for k in 'RANK WORLD_SIZE NNODES NODE_RANK MASTER_PORT PET_NNODES"
        " PET_MASTER_PORT MARSV2_NB_NAME'.split()), os.environ['MASTER_ADDR'])"
    )
    task = await here.run(here.spec("gang", code, nodes=2))
    assert task.outcome == SUCCEEDED
    first, second = sorted(await here.lines(task.id))
    port, address = first.split()[4], first.split()[-1]
    assert first.split() == ["0", "2", "2", "0", port, "2", port, "gang", address]
    assert second.split() == ["1", "2", "2", "1", port, "2", port, "gang", address]


async def test_nothing_of_the_shell_that_started_the_server_reaches_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PWD", "OLDPWD", "_", "PS1", "SHLVL", "VIRTUAL_ENV", "SSH_AUTH_SOCK", "SECRET"):
        monkeypatch.setenv(name, "of the shell")
    code = "import os\nprint(os.environ['PWD'] == os.getcwd(), *os.environ.values(), sep='\\n')"
    async with process_deployment(tmp_path) as here:
        (tmp_path / "work").mkdir()
        task = await here.run(here.spec("seen", code, program={"workspace": f"{tmp_path}/work"}))
        lines = await here.lines(task.id)
    assert task.outcome == SUCCEEDED
    assert lines[0] == "True"
    assert "of the shell" not in lines


async def test_arguments_and_variables_reach_the_program_unchanged(here: Deployment) -> None:
    hard = ["a b", "'q'", '"d"', "$(touch x)", "`id`", ";", "line\nbreak", "*", "", "ünï & #%"]
    code = "import json, os, sys\nprint(json.dumps([sys.argv[1:], os.environ['HARD']]))"
    value = "a b; $(x) 'q'\nnext"
    task = await here.run(here.spec("hard", code, *hard, program={"environments": {"HARD": value}}))
    assert json.loads("".join(await here.lines(task.id))) == [hard, value]


async def test_an_urgent_task_takes_the_nodes_and_the_other_comes_back(here: Deployment) -> None:
    low = await here.client.tasks.create(here.spec("low", POLITE, "60", nodes=2, priority=0))
    await here.until_printed(low.id, "running")
    high = await here.run(here.spec("high", POLITE, "1", nodes=2, priority=30))
    assert high.outcome == SUCCEEDED
    low = await here.client.tasks.wait(low.id, timeout=30)
    assert (low.outcome, low.suspend_count, low.run_count) == (SUCCEEDED, 1, 2)
    kinds = await here.kinds(low.id)
    assert kinds.index("SuspendAsked") < kinds.index("SuspendAcknowledged") < kinds.index("Yielded")
    runs = await here.client.tasks.runs(low.id)
    assert runs[0].suspended_for == high.id


async def test_a_program_that_does_not_listen_is_ended_and_one_that_knows_sigterm_is_asked_that_way(
    here: Deployment,
) -> None:
    deaf = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)"
        "\nprint('deaf', flush=True)\ntime.sleep(60)"
    )
    term = (
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(0)))"
        "\nprint('ready', flush=True)\ntime.sleep(60)"
    )
    one = await here.client.tasks.create(here.spec("deaf", deaf, ack_within=0.3))
    two = await here.client.tasks.create(here.spec("term", term, suspend_signal="SIGTERM"))
    await here.until_printed(one.id, "deaf")
    await here.until_printed(two.id, "ready")
    for task in (one, two):
        await here.client.tasks.suspend(task.id, hold=True)
    for task in (one, two):
        task = await here.client.tasks.wait(task.id, "suspended", timeout=20)
        assert task.held
    assert "SuspendForced" in await here.kinds(one.id)
    assert "SuspendForced" not in await here.kinds(two.id)
    assert "saved" in await here.lines(two.id)


FAILURES = [
    pytest.param("import sys; sys.exit(3)", {}, "exit code 3", id="exit code"),
    pytest.param(
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", {}, "SIGSEGV", id="signal"
    ),
    pytest.param(
        "import time; time.sleep(60)", {"watchdog_time": 1}, "printed nothing", id="watchdog"
    ),
    pytest.param(
        "import time; time.sleep(60)",
        {"time_limit": 1, "ack_within": 0.2},
        "time limit",
        id="time limit",
    ),
]


@pytest.mark.parametrize(("code", "options", "why"), FAILURES)
async def test_a_failure_is_told_in_words(
    here: Deployment, code: str, options: dict[str, float], why: str
) -> None:
    task = await here.run(here.spec("fails", code, **options))
    assert task.outcome == FAILED
    assert why in task.reason


async def test_one_failing_rank_ends_the_run_and_its_last_lines_are_kept(here: Deployment) -> None:
    code = "import os, sys, time\nif os.environ['RANK'] == '1':\n    raise ValueError('out of luck')\ntime.sleep(60)"
    task = await here.run(here.spec("half", code, nodes=2))
    assert task.outcome == FAILED
    assert "rank 1" in task.reason
    assert "out of luck" in task.run.ranks[1].last_lines
    assert task.run.ranks[0].exit_meaning == "ended by SIGTERM"


async def test_a_missing_program_fails_at_once_with_its_path(here: Deployment) -> None:
    spec = here.spec("nowhere", "")
    spec.spec.entrypoint = "/nowhere/train.py"
    task = await here.run(spec)
    assert task.outcome == FAILED
    assert "/nowhere/train.py" in task.reason


@ON_THIS_MACHINE
async def test_a_killed_agent_is_a_node_failure_and_its_program_dies_with_it(
    here: Deployment,
) -> None:
    task = await here.client.tasks.create(here.spec("one", POLITE, "60"))
    await here.until_printed(task.id, "running")
    directory = here.rank(f"{task.id}-1-0")
    agent, program = (
        int((directory / f).read_text().split()[0]) for f in ("agent.pid", "program.pid")
    )
    os.kill(agent, signal.SIGKILL)
    task = await here.client.tasks.wait(task.id, timeout=30)
    assert (task.outcome, task.node_failure_count, task.run_count) == (SUCCEEDED, 1, 2)
    assert processes.read_process(program) is None


BLAMING = """
import os, sys
from hai.task.current_channel import current
print("ran on", os.environ["HAI_NODE_NAME"], flush=True)
if os.environ["HAI_RUN"] == "1":
    current().request("report_node", 10.0, healthy=False, error="xid 79")
    sys.exit(1)
"""


async def test_a_program_that_reports_its_node_runs_again_elsewhere(here: Deployment) -> None:
    task = await here.client.tasks.create(here.spec("blaming", BLAMING))
    await here.until_printed(task.id, "ran on")
    task = await here.client.tasks.wait(task.id, until="suspended", timeout=30)
    assert "xid 79" in task.reason
    await here.client.tasks.resume(task.id)  # now, instead of after the back-off
    task = await here.client.tasks.wait(task.id, timeout=30)
    assert (task.outcome, task.failure_count, task.node_failure_count) == (SUCCEEDED, 0, 1)
    first, second = await here.lines(task.id)
    assert first != second
    node = await here.client.nodes.get(first.removeprefix("ran on "))
    assert (node.cordoned, node.reason) == (True, f"reported by task {task.id}: xid 79 (agent)")


@pytest.fixture(params=["processes", "pods"])
async def any_server(
    request: pytest.FixtureRequest, server: ServerProcess, tmp_path: Path
) -> AsyncIterator[ServerProcess]:
    """In a process of its own; not started yet."""
    if request.param == "processes":
        yield server
        return
    async with process_pod_cluster(tmp_path, 2) as cluster:
        table = kubernetes_settings(tmp_path, cluster.kubeconfig(tmp_path / "kubeconfig"))
        (tmp_path / "hai.toml").write_text(tomli_w.dumps({"kubernetes": table}))
        yield server


async def test_programs_run_on_while_the_server_is_dead(
    any_server: ServerProcess, tmp_path: Path
) -> None:
    server = any_server
    code = (
        "import time\nfor i in range(60):\n    print('tick', i, flush=True)\n    time.sleep(0.05)"
    )
    profile = await asyncio.to_thread(server.start)
    async with Client(profile) as client:
        here = Deployment(client, tmp_path, tmp_path)
        task = await client.tasks.create(here.spec("ticks", code))
        await here.until_printed(task.id, "tick 5")
        server.end(signal.SIGKILL)
        await asyncio.to_thread(server.start)
        task = await client.tasks.wait(task.id, timeout=30)
        assert (task.outcome, task.run_count) == (SUCCEEDED, 1)
        assert await here.lines(task.id) == [f"tick {i}" for i in range(60)]


BUSY = """
import sys, time, hai
from pathlib import Path
print("running", flush=True)
while not (Path(sys.argv[1]).exists() and hai.receive_suspend_command()):
    time.sleep(0.02)
hai.go_suspend()
"""


async def test_who_was_asked_to_save_has_time_for_it_however_long_the_server_was_away(
    any_server: ServerProcess, tmp_path: Path
) -> None:
    server, free = any_server, tmp_path / "free"
    profile = await asyncio.to_thread(server.start)
    async with Client(profile) as client:
        here = Deployment(client, tmp_path, tmp_path)
        asked = here.spec("busy", BUSY, str(free), ack_within=1.0, save_within=1.0)
        task = await client.tasks.create(asked)
        await here.until_printed(task.id, "running")
        await client.tasks.suspend(task.id, hold=True)
        server.end(signal.SIGKILL)
        await asyncio.sleep(2.5)
        await asyncio.to_thread(server.start)
        free.touch()
        await client.tasks.wait(task.id, "suspended", timeout=30)
        kinds = await here.kinds(task.id)
        assert "Yielded" in kinds
        assert "SuspendForced" not in kinds


async def test_the_sweep_after_a_killed_server_leaves_no_process(
    server: ServerProcess, tmp_path: Path
) -> None:
    profile = await asyncio.to_thread(server.start)
    async with Client(profile) as client:
        here = Deployment(client, tmp_path, tmp_path)
        task = await client.tasks.create(here.spec("orphan", MANY))
        await here.until_printed(task.id, "started")
    server.end(signal.SIGKILL)
    assert here.marked(task.id)
    server.sweep()
    assert here.marked(task.id) == []


async def test_every_violation_is_reported_at_once_and_nothing_is_created(here: Deployment) -> None:
    spec = TaskSpec(
        version=1,
        name="bad(name)",
        spec=ProgramSpec(workspace="a b"),
        resource=ResourceSpec(node_count=0, group="nope"),
    )
    with pytest.raises(Invalid) as refused:
        await here.client.tasks.create(spec)
    fields = {v.field for v in refused.value.violations}
    assert {
        "version",
        "name",
        "spec.entrypoint",
        "spec.workspace",
        "resource.node_count",
        "resource.group",
    } <= fields
    assert not (await here.client.tasks.list()).tasks


MANY = "#!/bin/sh\nsetsid sleep 300 &\nsleep 300 &\necho started\nwait"


async def test_stopping_ends_every_process(here: Deployment) -> None:
    task = await here.client.tasks.create(here.spec("many", MANY, ack_within=0.2))
    await here.until_printed(task.id, "started")
    await here.client.tasks.stop(task.id)
    task = await here.client.tasks.wait(task.id, timeout=20)
    assert task.outcome == TaskOutcome.TASK_OUTCOME_STOPPED
    assert here.marked(task.id) == []


async def test_a_second_task_of_one_name_is_refused_while_the_first_lives(here: Deployment) -> None:
    await here.client.tasks.create(here.spec("same", POLITE, "50"))
    with pytest.raises(Conflict, match="same"):
        await here.client.tasks.create(here.spec("same", POLITE, "50"))
