"""What users of a busy server see: the durations of calls, and the delay of lines in a log that is followed.

    python -m tests.load.users --home DIR --seconds 20 --follow TASK

Prints JSON: the durations by call, and the delays of the lines.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from hai.client.client import Client
from hai.client.errors import TimedOut
from hai.client.profile import Profile
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec

_PAUSE_SECONDS = 0.2  # between two calls of a kind


def profile_of(home: Path) -> Profile:
    """Return an admin's profile of the server with this home."""
    address = json.loads((home / "server.json").read_text())["address"]
    return Profile("load", address, (home / "admin.token").read_text())


async def _repeat(call: Callable[[int], Awaitable[object]], ends_at: float) -> list[float]:
    durations: list[float] = []
    while time.monotonic() < ends_at:
        began = time.perf_counter()
        with suppress(TimedOut):  # the duration tells it
            await call(len(durations))
        durations.append(time.perf_counter() - began)
        await asyncio.sleep(_PAUSE_SECONDS)
    return durations


async def _follow(client: Client, task: int) -> list[float]:
    """Return the delays of all lines that are printed from now on, until cancelled."""
    delays: list[float] = []
    began = time.time()
    with suppress(asyncio.CancelledError):
        async for answer in client.logs.tail(task, tail_lines=1, follow=True):
            now = time.time()
            times = [line.time.seconds + line.time.nanos / 1e9 for line in answer.lines]
            delays += [now - printed for printed in times if printed > began]
    return delays


async def run(home: Path, seconds: float, follow: int) -> dict[str, list[float]]:
    ends_at = time.monotonic() + seconds
    async with Client(profile_of(home)) as client, Client(profile_of(home)) as reader:

        def submit(number: int) -> Awaitable[object]:
            spec = TaskSpec(
                version=2,
                name=f"more-{os.getpid()}-{number}",
                spec=ProgramSpec(entrypoint="train.py", workspace="/tmp"),
                resource=ResourceSpec(node_count=1),
                priority=10,
            )
            return client.tasks.create(spec)

        following = asyncio.create_task(_follow(reader, follow)) if follow else None
        names = ("get", "list", "submit")
        calls = (lambda _: client.tasks.get(1), lambda _: client.tasks.list(page_size=50), submit)
        found = await asyncio.gather(*(_repeat(call, ends_at) for call in calls))
        result = dict(zip(names, found, strict=True))
        if following is not None:
            following.cancel()
            result["follow"] = await following
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the home of the server")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to measure")
    parser.add_argument("--follow", type=int, default=0, help="task whose log is followed")
    flags = parser.parse_args()
    print(json.dumps(asyncio.run(run(flags.home, flags.seconds, flags.follow))))


if __name__ == "__main__":
    main()
