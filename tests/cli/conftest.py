"""A small cluster in memory, and a function that runs a command line in this process."""

from __future__ import annotations

import asyncio
import io
import shlex
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from hai.client.client import Client
from hai.client.fake.server import FakeClient
from hai.v1.node_pb2 import NODE_STATE_NOT_READY
from hai.v1.task_pb2 import RANK_STATE_FAILED, TASK_OUTCOME_FAILED, Goodput
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai.v1.user_pb2 import Quota
from hai_tui.cli.main import main

_VARIABLES = [
    *("LC_ALL", "LC_MESSAGES", "HAI_LANG", "HAI_PROFILE", "HAI_SERVER", "HAI_TOKEN", "HAI_HOME"),
    *("HF_ENV_NAME", "HF_ENV_OWNER", "MARSV2_SERVER", "MARSV2_USER_TOKEN"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "NO_COLOR"),
]


@dataclass(frozen=True)
class Result:
    """The exit code and the output of a command line."""

    code: int
    out: str
    err: str


class Shell:
    """Runs command lines with a client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def __call__(self, *argv: str) -> Result:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(argv, connect=lambda profile: self.client, clock=lambda: 1_800_003_700.0)
        return Result(code, out.getvalue(), err.getvalue())

    def line(self, command: str) -> Result:
        """Run a line, which is split as a shell does. Its first word is `hai`."""
        return self(*shlex.split(command)[1:])


def spec(name: str, nodes: int = 1, priority: int = -1) -> TaskSpec:
    """Return a task that runs train.py."""
    return TaskSpec(
        version=2,
        name=name,
        priority=priority,
        spec=ProgramSpec(entrypoint="train.py", workspace="/work"),
        resource=ResourceSpec(node_count=nodes),
    )


GOODPUT = Goodput(
    share=0.912,
    held_seconds=30_000,
    overhead_seconds=240,
    lost_seconds=2400,
    interruptions=4,
    checkpoints=24,
    checkpoint_time=Timestamp(seconds=1_800_003_000),
    checkpoint_seconds=9.5,
    interval_seconds=1240,
    advised_interval_seconds=373,
    between_interruptions_seconds=7440,
    basis="task",
    note="it saves too rarely: each 20.7 min of work; 6.22 min would lose less",
)


async def _fill(fake: FakeClient) -> None:
    """Add tasks: 1 runs, 2 waits and belongs to another user, 3 has failed."""
    for each in (spec("train", 2, 30), spec("eval", 4), spec("bad")):
        await fake.tasks.create(each)
    fake.start(1, ["n0", "n1"])
    for rank, text in ((0, "step 1"), (1, "step 1"), (0, "loss 0.5")):
        fake.advance(1)
        fake.print(1, text, rank=rank)
    _measure(fake)
    fake.world.tasks[2].user = "bob"
    fake.world.tasks[1].goodput.CopyFrom(GOODPUT)
    waits = fake.world.tasks[2].waiting
    waits.message, waits.queue_place, waits.effective_priority = "wants 4 nodes, 1 is free", 1, 10
    fake.world.digests["registry.example/lab/main:1"] = "sha256:" + "1" * 64
    await fake.users.set_quota(Quota(subject="alice", group="default", priority=-1, nodes=8))
    await fake.users.set_quota(Quota(subject="alice", group="default", priority=30, nodes=2))


def _measure(fake: FakeClient) -> None:
    """Add six minutes of usage an hour ago, with a gap, and two audited calls."""
    then, gib = fake.world.now, 1 << 30
    for minute in (0, 1, 2, 4, 5):
        fake.world.now = then - 3600 + minute * 60
        memory = {"memory_bytes": minute * gib, "memory_bytes_max": 6 * gib}
        gpu = {"gpu_utilisation": minute / 5, "gpu_utilisation_max": 1.0, "gpu_memory_bytes": gib}
        fake.measure(1, cpus=minute, cpus_max=minute + 1, **memory)
        fake.measure(1, rank=1, cpus=8, cpus_max=8, gpu_memory_bytes_max=gib, **memory, **gpu)
        load = {"busy_nodes": minute % 3, "booked_gpus": 8, "waiting_tasks": 1}
        fake.measure_cluster(nodes=2, gpus=16, **load)
    fake.world.now = then
    fake.audited("StopTask", "2", "PERMISSION_DENIED", actor="bob", what="id=2")
    fake.audited("CordonNode", "n1", what="name='n1' reason='fan'")


def _fail(fake: FakeClient, id: int, exit_code: int) -> None:
    fake.start(id, ["n1"])
    rank = fake.world.runs[id][-1].ranks[0]
    rank.exit_code, rank.last_lines = exit_code, "ValueError: no data\n"
    fake.finish(id, TASK_OUTCOME_FAILED, f"rank 0 exited with {exit_code}")
    for run in (fake.world.runs[id][-1], fake.world.tasks[id].run):
        run.ranks[0].state = RANK_STATE_FAILED


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """English, UTC, no profile, no settings of the person who runs the tests."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("HAI_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def fake() -> FakeClient:
    """Three tasks, three nodes, some log, two quotas."""
    result = FakeClient(nodes=["n0", "n1"])
    result.add_node("x0", "extra", gpus=0)
    result.world.nodes["n0"].zone = "a"
    result.world.nodes["x0"].state = NODE_STATE_NOT_READY
    result.world.nodes["x0"].reason = "no heartbeat"
    asyncio.run(_fill(result))
    _fail(result, 3, 3)
    return result


@pytest.fixture
def hai(fake: FakeClient) -> Shell:
    """Runs `hai` against that cluster."""
    return Shell(fake)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --rewrite, which works if tests/cli is named on the command line."""
    parser.addoption("--rewrite", action="store_true", help="write transcripts anew")
