"""Runs actions of sharded_actions.py on several ranks, each a process. It imports torch once, and forks the ranks.

The argument `variables` of an action sets environment variables of the ranks.

Requests and answers are lines of JSON on stdin and stdout: `{"world": 2, "action": "save", "arguments": {…}}`, and for
each rank `{"exit": 0, "result": …}`. A rank that does not end in time is killed, with exit -9.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).parent.parent.parent


class Ranks(Protocol):
    """Runs an action on so many ranks, and returns what each answered."""

    def __call__(self, world: int, action: str, **arguments: Any) -> list[dict[str, Any]]: ...


@contextmanager
def serving_ranks(seconds: int = 60) -> Iterator[Ranks]:
    """Start the server. An action may take so many seconds."""
    path = os.pathsep.join([str(ROOT), *(entry for entry in sys.path if entry)])
    with subprocess.Popen(
        [sys.executable, "-m", "tests.sdk.rank_server", str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo"},
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def run(world: int, action: str, **arguments: Any) -> list[dict[str, Any]]:
            request = {"world": world, "action": action, "arguments": arguments}
            print(json.dumps(request), file=server.stdin, flush=True)
            answers: list[dict[str, Any]] = json.loads(server.stdout.readline())
            return answers

        yield run
        server.stdin.close()


def main(seconds: int) -> None:
    import torch

    from tests.sdk import sharded_actions

    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        action = getattr(sharded_actions, request["action"])
        with tempfile.TemporaryDirectory() as folder:
            answers = _run(request["world"], action, request["arguments"], Path(folder), seconds)
        print(json.dumps(answers), flush=True)


def _run(
    world: int, action: Any, arguments: dict[str, Any], folder: Path, seconds: int
) -> list[dict[str, Any]]:
    pids = [_fork_rank(rank, world, action, arguments, folder) for rank in range(world)]
    codes = dict.fromkeys(pids, -signal.SIGKILL.value)
    running, deadline = set(pids), time.monotonic() + seconds
    while running and time.monotonic() < deadline:
        for pid in sorted(running):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                running.discard(pid)
                codes[pid] = os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    results = [folder / f"result{rank}" for rank in range(world)]
    return [
        {"exit": codes[pid], "result": json.loads(path.read_text()) if path.exists() else None}
        for pid, path in zip(pids, results, strict=True)
    ]


def _fork_rank(rank: int, world: int, action: Any, arguments: dict[str, Any], folder: Path) -> int:
    if pid := os.fork():
        return pid
    import torch.distributed as dist

    os.dup2(2, 1)  # stdout belongs to the server
    os.environ.update(arguments.pop("variables", {}))
    try:
        if world > 1:
            store = f"file://{folder / 'store'}"
            dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
        (folder / f"result{rank}").write_text(json.dumps(action(**arguments)))
        if world > 1:
            dist.barrier()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
