"""The main job with the same server on PostgreSQL."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import make_url

from hai.client.client import Client
from hai.v1.task_pb2 import TaskOutcome
from hai.v1.task_spec_pb2 import ProgramSpec, TaskSpec
from hai_backend.launch.process import sweep
from hai_backend.testing.server import running_server

pytestmark = pytest.mark.postgres


@pytest.fixture
async def database() -> AsyncIterator[str]:
    """A new database on the server that HAI_TEST_POSTGRES names."""
    address = os.environ.get("HAI_TEST_POSTGRES")
    if not address:
        pytest.skip("HAI_TEST_POSTGRES is not set: no PostgreSQL server to test with")
    name = f"hai_e2e_{uuid.uuid4().hex}"
    admin = await asyncpg.connect(address)
    await admin.execute(f'CREATE DATABASE "{name}"')
    yield make_url(address).set(database=name).render_as_string(hide_password=False)
    await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await admin.close()


async def test_a_task_survives_a_restart_of_the_server(database: str, tmp_path: Path) -> None:
    program, home = tmp_path / "program.py", tmp_path / "home"
    program.write_text("import time\nprint('begun', flush=True)\ntime.sleep(1.5)\nprint('done')")
    spec = TaskSpec(version=2, name="one", spec=ProgramSpec(entrypoint=str(program)))
    try:
        async with (
            running_server(home, nodes=1, database=database) as server,
            Client(server.profile) as client,
        ):
            task = await client.tasks.create(spec)
            async for answer in client.logs.tail(task.id, follow=True):
                if answer.lines:
                    break
        async with (
            running_server(home, nodes=1, database=database) as server,
            Client(server.profile) as client,
        ):
            task = await client.tasks.wait(task.id, timeout=30)
            assert (task.outcome, task.run_count) == (TaskOutcome.TASK_OUTCOME_SUCCEEDED, 1)
            lines = [n.text async for a in client.logs.tail(task.id) for n in a.lines]
            assert lines == ["begun", "done"]
    finally:
        sweep(home)
