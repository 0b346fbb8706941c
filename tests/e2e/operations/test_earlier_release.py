"""Data that commit 76f80909 wrote can still be used: database, settings, profile, workspace and environment.

The archive has the directories of a server and of its user, as that commit wrote them. Databases are stored as SQL, and
values that depend on the machine as `@NAME@`. The tasks: 1 and 6 succeeded (6 in a workspace), 2 and 3 failed, 4 waits,
5 waits for another task, 7 is on hold after a run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import site
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from hai.client.client import Client
from hai.v1.task_pb2 import TaskOutcome, TaskState
from hai_backend.server.paths import last_port, save_port
from tests.ports import free_port
from tests.support.servers import ServerProcess

ARCHIVE = Path(__file__).parents[2] / "testdata/earlier_release/76f80909.tar.xz"
BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Restored:
    """The restored directories, and the server that runs in one of them."""

    root: Path
    server: ServerProcess

    def run(self, *command: str, cwd: str = "ws") -> str:
        """Run a command as the user, and return what it prints. Raises AssertionError if it fails."""
        environment = {**os.environ, "HOME": str(self.root / "user"), "NO_COLOR": "1"}
        environment.pop("HAI_HOME", None)
        done = subprocess.run(
            [BIN / command[0], *command[1:]],
            cwd=self.root / cwd,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Restored]:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="tar")  # the filter "data" rejects the link to a Python
    _fill_in(
        tmp_path,
        {
            "@ROOT@": str(tmp_path),
            "@SITE@": site.getsitepackages()[0],
            "@PYTHON@": os.path.realpath(sys.executable),
            "@BIN@": os.path.dirname(os.path.realpath(sys.executable)),
            "@VERSION@": ".".join(map(str, sys.version_info[:3])),
        },
    )
    server = ServerProcess(tmp_path / "home")
    save_port(server.home, f":{free_port()}")
    [lock] = (tmp_path / "user/.local/share/haienv/root/.layers").glob("*/lock.txt")
    status = (tmp_path / "ws").stat()
    _fill_in(
        tmp_path,
        {
            "@PORT@": str(last_port(server.home)),
            "@LOCK@": hashlib.sha256(lock.read_bytes()).hexdigest(),
            "@ROOT_ID@": f"{status.st_dev} {status.st_ino} {os.fsencode(tmp_path / 'ws').hex()}",
        },
    )
    _restore_databases(tmp_path)
    server.start()
    yield Restored(tmp_path, server)
    if server.running:
        server.end()
    server.sweep()


def _fill_in(directory: Path, values: dict[str, str]) -> None:
    for path in directory.rglob("*"):
        if path.is_symlink() and (value := values.get(os.readlink(path))):
            path.unlink()
            path.symlink_to(value)
        elif path.is_file() and not path.is_symlink():
            before = content = path.read_bytes()
            for name, value in values.items():
                content = content.replace(name.encode(), value.encode())
            if content != before:
                path.write_bytes(content)


def _restore_databases(directory: Path) -> None:
    for dump in directory.rglob("*.sql"):
        with closing(sqlite3.connect(dump.with_suffix(""))) as database:
            database.executescript(dump.read_text())
        dump.unlink()


async def test_tasks_of_an_earlier_release_are_there_and_go_on(restored: Restored) -> None:
    async with Client(restored.server.profile()) as client:
        tasks = {task.id: task async for task in client.tasks.all()}
        assert {id: (task.name, TaskState.Name(task.state)[11:]) for id, task in tasks.items()} == {
            1: ("first", "FINISHED"),
            2: ("fails", "FINISHED"),
            3: ("saves", "FINISHED"),
            4: ("waits", "WAITING_INIT"),
            5: ("after", "WAITING_INIT"),
            6: ("inws", "FINISHED"),
            7: ("held", "SUSPENDED"),
        }
        assert TaskOutcome.Name(tasks[2].outcome) == "TASK_OUTCOME_FAILED"
        assert "waits" in restored.run("hai", "events", "4", cwd=".") or restored.run(
            "hai", "events", "7", cwd="."
        )
        assert "hello from" in restored.run("hai", "logs", "1", cwd=".")
        await client.nodes.uncordon("node2")
        program = restored.root / "first.py"
        program.write_text("print('done')")
        for name in ("long.py", "saves.py"):
            shutil.copy(program, restored.root / name)
        await client.tasks.resume(7)
        for id in (4, 5, 7):
            task = await client.tasks.wait(id, timeout=100)
            assert TaskOutcome.Name(task.outcome) == "TASK_OUTCOME_SUCCEEDED", (id, task.reason)


def test_what_operators_and_users_have_set_is_there(restored: Restored) -> None:
    """Each list has the row that was created, and the audit names who created it."""
    lists = {
        ("user", "list"): "ada",
        ("quota", "list"): "ada",
        ("share", "list"): "staff",
        ("right", "list"): "workspace_gb:5",
        ("storage", "list"): "/srv/data",
        ("image", "list"): "registry.example.org/tools:1",
        ("artifact", "list"): "s3://bucket/resnet",
        ("dataset", "list"): "/data/imagenet",
        ("group", "show", "default"): "30m",
        ("audit",): "CreateUser",
    }
    shown = {command: restored.run("hai", *command, cwd=".") for command in lists}
    assert {command for command, row in lists.items() if row not in shown[command]} == set()


def test_a_workspace_is_still_in_sync_and_takes_a_push(restored: Restored) -> None:
    assert "in sync" in restored.run("haiworkspace", "status")
    (restored.root / "ws/data/input.txt").write_text("three\n")
    assert "revision 3" in restored.run("haiworkspace", "push")
    assert restored.run("haiworkspace", "cat", "data/input.txt", "-r", "1") == "one\n"
    assert restored.run("haiworkspace", "cat", "data/input.txt") == "three\n"


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="the environment was made for Python 3.11"
)
def test_an_environment_runs(restored: Restored) -> None:
    assert "small" in restored.run("haienv", "list")
    answer = restored.run(
        "haienv", "run", "small", "python", "-c", "import tiny_answer; print(tiny_answer.answer)"
    )
    assert answer == "42\n"
