"""A silent agent is shown in status, list, why, nodes and the timeline while it is silent, and not afterwards."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hai.client.client import Client
from tests.silence import cluster
from tests.silence.ranks import Pids
from tests.support.servers import ServerProcess

Commands = list[tuple[str, ...]]
SILENT = re.compile(r"silent for \d+ s")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    home = tmp_path / "home"
    cluster.configure(home)
    made = ServerProcess(home, "--nodes", "2")
    made.start()
    yield made
    if made.running:
        made.end()
    made.sweep()


async def hai(server: ServerProcess, *words: str) -> str:
    """Run a command, and return what it prints."""
    profile = server.profile()
    env = {**os.environ, "HAI_SERVER": profile.server, "HAI_TOKEN": profile.token, "COLUMNS": "200"}
    program = Path(sys.executable).parent / "hai"
    process = await asyncio.create_subprocess_exec(
        program, *words, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, (words, out, errors)
    return out.decode()


async def shown(server: ServerProcess, commands: Commands) -> Commands:
    """Return the commands that report silence now."""
    return [words for words in commands if SILENT.search(await hai(server, *words))]


async def test_silence_is_shown_while_it_lasts(server: ServerProcess, tmp_path: Path) -> None:
    finish = tmp_path / "finish"
    async with Client(server.profile()) as client:
        spec = cluster.task_spec(tmp_path, "--until", str(finish), nodes=2)
        task = str((await client.tasks.create(spec)).id)
        await cluster.until_running(client, int(task))
        commands = [("status", task), ("list",), ("why", task), ("nodes",)]
        pids = Pids(server.home / "run" / f"{task}-1-1").named()
        with cluster.stopped([pids["agent"]]):
            await cluster.until(
                lambda: _silent(client, int(task)), 20, "its agent is shown as silent"
            )
            assert await shown(server, commands) == commands
        await cluster.until(lambda: _heard(client, int(task)), 20, "its agent is heard again")
        assert not await shown(server, commands)
        finish.touch()
        await client.tasks.wait(int(task), timeout=20)
    timeline = await hai(server, "events", task)
    assert "agent of rank 1 on node2 is silent since" in timeline, timeline
    assert re.search(r"agent of rank 1 on node2 is heard again", timeline), timeline


async def _silent(client: Client, task: int) -> bool:
    return (await client.tasks.get(task)).run.ranks[1].HasField("silent_since_time")


async def _heard(client: Client, task: int) -> bool:
    return not await _silent(client, task)
