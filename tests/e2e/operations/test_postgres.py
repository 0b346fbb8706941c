"""A task survives a restart of the server with PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai.client.client import Client
from hai.v1.task_pb2 import TaskOutcome
from hai.v1.task_spec_pb2 import ProgramSpec, TaskSpec
from hai_backend.launch.local_launcher import sweep
from tests.support.servers import running_server

pytestmark = pytest.mark.postgres


async def test_a_task_survives_a_restart_of_the_server(postgres_url: str, tmp_path: Path) -> None:
    program, home = tmp_path / "program.py", tmp_path / "home"
    program.write_text("import time\nprint('begun', flush=True)\ntime.sleep(1.5)\nprint('done')")
    spec = TaskSpec(version=2, name="one", spec=ProgramSpec(entrypoint=str(program)))
    try:
        async with (
            running_server(home, nodes=1, database=postgres_url) as server,
            Client(server.profile) as client,
        ):
            task = await client.tasks.create(spec)
            async for answer in client.logs.tail(task.id, follow=True):
                if answer.lines:
                    break
        async with (
            running_server(home, nodes=1, database=postgres_url) as server,
            Client(server.profile) as client,
        ):
            task = await client.tasks.wait(task.id, timeout=30)
            assert (task.outcome, task.run_count) == (TaskOutcome.TASK_OUTCOME_SUCCEEDED, 1)
            lines = [n.text async for a in client.logs.tail(task.id) for n in a.lines]
            assert lines == ["begun", "done"]
    finally:
        sweep(home)
