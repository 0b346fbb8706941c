"""The password in a repository's address is stored only in the spec, where the clone needs it, and shown nowhere."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from hai.client.client import Client
from hai.client.errors import Invalid
from hai.v1.task_pb2 import TASK_OUTCOME_FAILED
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from tests.support.servers import ServerProcess

PASSWORD = "hunter2-s3cr3t"
REPOSITORY = f"http://ada:{PASSWORD}@127.0.0.1:9/x.git?token={PASSWORD}"
SPEC = TaskSpec(
    version=2,
    name="clones",
    spec=ProgramSpec(
        entrypoint="main.py",
        git_remote_repo=REPOSITORY,
        environments={"HTTP_PROXY": f"http://ada:{PASSWORD}@proxy:1"},
        parameters=[f"--data=https://{PASSWORD}@host/data"],
    ),
    resource=ResourceSpec(node_count=1),
)


async def test_a_failed_clone_tells_its_password_to_nobody(server: ServerProcess) -> None:
    async with Client(server.start()) as client:
        task = await client.tasks.create(SPEC)
        ended = await client.tasks.wait(task.id, timeout=60)
        assert ended.outcome == TASK_OUTCOME_FAILED
        assert "http://****@127.0.0.1:9/x.git?token=****" in ended.reason
        await client.nodes.cordon(ended.run.ranks[0].node, f"see {REPOSITORY}")
        shown = [
            ended,
            await client.tasks.get(task.id),
            await client.tasks.explain(task.id),
            *await client.tasks.events(task.id),
            *await client.tasks.runs(task.id),
            *await client.nodes.list(),
            *[line async for part in client.logs.tail(task.id) for line in part.lines],
            *[row async for row in client.audit.rows()],
        ]
        assert len(shown) > 10
        assert [each for each in shown if PASSWORD in str(each)] == []
        again = (await client.tasks.get(task.id)).spec
        error = await _refusal(client, again)
    server.end()
    assert "spec.git_remote_repo" in error
    assert "spec.environments[HTTP_PROXY]" in error
    assert "spec.parameters[0]" in error
    assert _columns_with(PASSWORD, server.home / "hai.db") == {"tasks.spec"}
    assert _files_with(PASSWORD, server.home) == []


async def _refusal(client: Client, spec: TaskSpec) -> str:
    try:
        await client.tasks.create(spec)
    except Invalid as error:
        return str(error)
    raise AssertionError("a masked password was taken for a real one")


def _columns_with(word: str, database: Path) -> set[str]:
    found = set()
    with sqlite3.connect(database) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in tables.fetchall():
            rows = connection.execute(f'SELECT * FROM "{table}"')
            names = [column[0] for column in rows.description]
            for row in rows:
                pairs = zip(names, row, strict=True)
                found |= {f"{table}.{name}" for name, value in pairs if word in str(value)}
    return found


def _files_with(word: str, folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file() and not _is_database(path))
    return [str(path) for path in files if word.encode() in path.read_bytes()]


def _is_database(path: Path) -> bool:
    return path.name.startswith("hai.db")
