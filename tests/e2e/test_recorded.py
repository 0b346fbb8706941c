"""A server that records its passes: a replay makes the same decisions, and the snapshot has the waiting tasks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from hai.client.client import Client
from hai.v1.task_pb2 import TaskOutcome
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai_backend.domain.scheduling.snapshot_json import parse
from hai_backend.launch.local_launcher import sweep
from hai_backend.sim.replay.verify import verify
from tests.support.servers import running_server

POLITE = """
import sys, time, hai
print("running", flush=True)
for _ in range(int(sys.argv[1])):
    if hai.receive_suspend_command():
        hai.go_suspend()
    time.sleep(0.02)
"""


def spec(program: Path, name: str, steps: int, priority: int) -> TaskSpec:
    return TaskSpec(
        version=2,
        name=name,
        priority=priority,
        spec=ProgramSpec(entrypoint=str(program), parameters=[str(steps)]),
        resource=ResourceSpec(node_count=2),
    )


async def preempted(client: Client, program: Path) -> None:
    """Let a task preempt another one, which then resumes and ends."""
    low = await client.tasks.create(spec(program, "low", 60, 0))
    async for answer in client.logs.tail(low.id, follow=True):
        if answer.lines:
            break
    high = await client.tasks.create(spec(program, "high-1", 5, 30))
    text = b"".join([part async for part in client.nodes.snapshot()])
    assert "low" in {task.name for task in parse(text.decode()).tasks}
    for task in (high, low):
        ended = await client.tasks.wait(task.id, timeout=40)
        assert ended.outcome == TaskOutcome.TASK_OUTCOME_SUCCEEDED
    assert ended.suspend_count == 1


async def test_what_a_server_decided_comes_out_again(tmp_path: Path) -> None:
    home, program = tmp_path / "home", tmp_path / "polite.py"
    program.write_text(POLITE)
    try:
        for _ in range(2):  # with a restart between the two
            async with (
                running_server(home, nodes=2, record_decisions=True) as server,
                Client(server.profile) as client,
            ):
                await preempted(client, program)
    finally:
        sweep(home)
    verdict = verify(str(home / "decisions.jsonl"))
    assert (verdict.difference, verdict.torn, verdict.beginnings) == (None, False, 2)
    assert verdict.decisions >= 2 * 4
    command = [sys.executable, "-m", "hai_tui.cli.main", "simulate", "--verify"]
    done = await asyncio.to_thread(
        subprocess.run, [*command, str(home / "decisions.jsonl")], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(", all as recorded\n")
