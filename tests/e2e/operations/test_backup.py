"""A backup is taken while the server runs. A server that starts from it has the state at that time."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hai.client.client import Client
from hai.client.profile import Profile
from hai.v1.task_pb2 import TaskOutcome, TaskState
from hai.v1.task_spec_pb2 import ProgramSpec, TaskSpec
from hai_backend.domain.node import Node
from hai_backend.launch.base import RankKey
from hai_backend.launch.fake import FakeLauncher
from tests.support.databases import create_database, drop_database
from tests.support.databases import database as new_database
from tests.support.servers import ServerProcess, running_server


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True)


def spec(name: str, program: Path) -> TaskSpec:
    return TaskSpec(version=2, name=name, spec=ProgramSpec(entrypoint=str(program)))


async def before(profile: Profile, program: Path) -> None:
    """Run one task to its end, and submit another, which waits because the only node is cordoned."""
    async with Client(profile) as client:
        ran = await client.tasks.create(spec("ran", program))
        await client.tasks.wait(ran.id, timeout=30)
        await client.nodes.cordon("node1", "it waits for the restore")
        await client.tasks.create(spec("waits", program))


@pytest.mark.parametrize(
    ("existing", "begun"), [([RankKey(9, 1, 0)], []), ([RankKey(7, 2, 0)], [(9, 1)])]
)
async def test_a_new_task_has_no_number_of_one_that_the_backup_does_not_know(
    tmp_path: Path, existing: list[RankKey], begun: list[tuple[int, int]]
) -> None:
    """What of that one still runs could attach, print and end in the name of the new one."""
    nodes, database = [Node("n0")], f"sqlite:///{tmp_path}/hai.db"
    for launcher, expected in (
        (FakeLauncher(nodes), 1),
        (FakeLauncher(nodes, existing, begun), 10),
    ):
        async with (
            running_server(tmp_path, launcher=launcher, database=database) as server,
            Client(server.profile) as client,
        ):
            made = await client.tasks.create(spec(f"new{expected}", tmp_path / "program.py"))
            assert made.id == expected


@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)
async def test_a_sweep_leaves_a_row_of_the_audit(
    server: ServerProcess, request: pytest.FixtureRequest, database: str
) -> None:
    async with AsyncExitStack() as stack:
        options = []
        if database == "postgres":
            url = await stack.enter_async_context(new_database(request.getfixturevalue("postgres")))
            options = ["--database", url]
        command = [
            sys.executable,
            "-m",
            "hai_backend.main",
            "--home",
            server.home,
            *options,
            "--sweep",
        ]
        before = run(*command)
        async with Client(server.start("--nodes", "1", *options)) as client:
            after = run(*command)
            rows = [row async for row in client.audit.rows(method="ServerSweep")]
        assert (before.returncode, after.returncode, after.stderr) == (0, 0, "")
        assert [(row.resource, row.code) for row in rows] == [(str(server.home), "OK")]
        assert rows[0].actor.endswith(" (hai-server)")
        server.end()


async def test_nor_of_one_of_which_only_files_are_left(tmp_path: Path) -> None:
    """Otherwise a new task with that number would get the old lines and load the old checkpoints."""
    for folder in ("logs/9", "checkpoints/7", "workspaces/ada/demo/tasks/12", "logs/old"):
        (tmp_path / folder).mkdir(parents=True)
    database = f"sqlite:///{tmp_path}/hai.db"
    async with (
        running_server(tmp_path, launcher=FakeLauncher([Node("n0")]), database=database) as server,
        Client(server.profile) as client,
    ):
        assert (await client.tasks.create(spec("new", tmp_path / "program.py"))).id == 13


async def after(profile: Profile) -> None:
    """Check that both tasks exist, that the old token works, and that the waiting task runs."""
    async with Client(profile) as client:
        known = {task.name: task async for task in client.tasks.all()}
        assert known["ran"].outcome == TaskOutcome.TASK_OUTCOME_SUCCEEDED
        assert known["waits"].state == TaskState.TASK_STATE_WAITING_INIT
        await client.nodes.uncordon("node1")
        task = await client.tasks.wait(known["waits"].id, timeout=30)
        assert task.outcome == TaskOutcome.TASK_OUTCOME_SUCCEEDED
        assert sorted(known) == ["ran", "waits"], "what came after the backup is not there"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    made = tmp_path / "program.py"
    made.write_text("print('hello')")
    return made


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[ServerProcess]:
    home = tmp_path / "restored"
    home.mkdir()
    made = ServerProcess(home, "--nodes", "1")
    yield made
    if made.running:
        made.end()
    made.sweep()


async def test_a_server_goes_on_from_a_backup_of_sqlite(
    server: ServerProcess, restored: ServerProcess, program: Path
) -> None:
    profile = server.start("--nodes", "1")
    await before(profile, program)
    copy = restored.home / "hai.db"
    chore = [sys.executable, "-m", "hai_backend.main", "--home", server.home, "--backup", copy]
    assert run(*chore).returncode == 0
    async with Client(profile) as client:
        await client.tasks.create(spec("later", program))
    again = run(*chore)
    assert again.returncode == 1
    assert "overwrites nothing" in again.stderr
    async with Client(profile) as client:
        rows = [row async for row in client.audit.rows(method="ServerBackup")]
    assert [(row.resource, row.code) for row in rows] == [(str(copy), "OK")]
    assert rows[0].actor.endswith(" (hai-server)")
    server.end()
    shutil.copy(server.home / "admin.token", restored.home)
    await after(restored.start())


async def test_without_its_database_a_server_ends_nothing_and_takes_no_token(
    server: ServerProcess, tmp_path: Path
) -> None:
    program = tmp_path / "sleeps.py"
    program.write_text("import time; time.sleep(600)")
    async with Client(server.start("--nodes", "1")) as client:
        task = await client.tasks.create(spec("runs on", program))
        await client.tasks.wait(task.id, "running", timeout=30)
    server.end(signal.SIGKILL)
    away = tmp_path / "away"
    away.mkdir()
    kept = [file.rename(away / file.name) for file in server.home.glob("hai.db*")]
    for _ in range(2):  # a cluster restarts it repeatedly
        with pytest.raises(RuntimeError, match=f"but 1 ranks of tasks run .{task.id}-1-0."):
            server.start()
    for file in kept:
        file.replace(server.home / file.name)
    async with Client(server.start()) as client:
        assert [run.number for run in await client.tasks.runs(task.id)] == [1]
        await client.tasks.stop(task.id)


@pytest.mark.postgres
@pytest.mark.skipif(shutil.which("pg_dump") is None, reason="pg_dump makes the backup")
async def test_a_server_goes_on_from_a_dump_of_postgres(
    server: ServerProcess, restored: ServerProcess, program: Path, postgres: str
) -> None:
    old, new = await create_database(postgres), await create_database(postgres)
    profile = server.start("--nodes", "1", "--database", old)
    await before(profile, program)
    dump = restored.home / "hai.dump"
    assert run("pg_dump", "--format=custom", f"--file={dump}", old).returncode == 0
    async with Client(profile) as client:
        await client.tasks.create(spec("later", program))
    server.end()
    assert run("pg_restore", "--exit-on-error", f"--dbname={new}", dump).returncode == 0
    shutil.copy(server.home / "admin.token", restored.home)
    await after(restored.start("--database", new))
    restored.end()
    await drop_database(postgres, old)
    await drop_database(postgres, new)
