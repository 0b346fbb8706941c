"""Many agents without programs in one process: the real session, spool and heartbeat of an agent for each rank.

    python -m tests.load.agents --home DIR --first 0 --count 2500 --lines 1.0

They run ranks of a server of tests/load/server.py, by their lines in DIR/ranks.jsonl, until SIGTERM. Each prints so
many lines a second. At the end the process prints what it has measured, as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import signal
import time
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path

from hai.v1 import agent_service_pb2 as pb
from hai_backend import runtime
from hai_backend.agent.lease import Lease
from hai_backend.agent.output.spool import Spool
from hai_backend.agent.rank_dir import RankDir
from hai_backend.agent.server.outgoing import Outgoing
from hai_backend.agent.server.session import Session
from hai_backend.logs.lines import stamp
from tests.load.server import RANKS, read_ranks

_SWEEP_SECONDS = 0.02  # between two looks at whose turn it is


@dataclass(slots=True)
class Report:
    """What the agents of one process have measured."""

    welcomed_at: list[float] = field(default_factory=list)  # in seconds since the Unix epoch
    lines: int = 0
    cpu_seconds: float = 0.0


class Agent:
    """The agent of one rank. Its program starts when the server says so, and never ends."""

    def __init__(self, home: Path, row: tuple[int, int, int, str], report: Report) -> None:
        self._key, token = row[:3], row[3]
        directory = RankDir(home / "run" / "-".join(map(str, self._key)))
        directory.path.mkdir(parents=True, exist_ok=True)
        (directory.path / "agent.json").write_text("{}")
        self._report = report
        self._started = False
        self._outgoing = Outgoing()
        self._spool = Spool(directory.spool)
        pace = random.uniform(0.8, 1.2)  # as if each had a process of its own
        self._session = Session(
            directory, token, self, self._outgoing, self._spool, Lease(inf), pace=pace
        )
        self.interval = directory.timing().interval

    async def run(self) -> None:
        await self._session.run()

    def hello(self, address: str) -> pb.AgentHello:
        """See Peer."""
        task, run, rank = self._key
        return pb.AgentHello(
            task_id=task, run=run, rank=rank, address=address, free_port=1, started=self._started
        )

    def handle(self, response: pb.AttachResponse) -> None:
        """See Peer."""
        match response.WhichOneof("message"):
            case "welcome":
                self._report.welcomed_at.append(time.time())
            case "go" if not self._started:
                self._started = True
                started = pb.AttachRequest(started=pb.ProgramStarted(pid=1))
                self._outgoing.keep("started", started)
                self._session.wake()

    def beat(self) -> None:
        self._session.beat()

    def print(self) -> None:
        if self._started:
            self._report.lines += 1
            self._spool.append(
                stamp(time.time()) + b"step 1234 loss 2.345 lr 0.0003 tokens/s 123456\n"
            )
            self._session.wake()


class Turns:
    """Calls a method of each agent in turn, each at its own time within every period."""

    def __init__(self, count: int, period: float) -> None:
        self._count, self._period = count, period
        self._done = 0
        self._begun = time.monotonic()

    def due(self) -> range:
        """Return the agents whose turn has come since the last call."""
        passed = int((time.monotonic() - self._begun) / self._period * self._count)
        first, self._done = self._done, max(self._done, passed)
        return range(first, self._done)


async def run(home: Path, first: int, count: int, lines: float) -> Report:
    """Run the agents until SIGTERM."""
    while len(rows := read_ranks(home / RANKS)) < first + count:  # noqa: ASYNC110 - a file
        await asyncio.sleep(0.1)
    report = Report()
    agents = [Agent(home, row, report) for row in rows[first : first + count]]
    running = [asyncio.create_task(agent.run()) for agent in agents]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    beats = Turns(count, agents[0].interval)
    prints = Turns(count, 1 / lines) if lines else None
    while not stop.is_set():
        await asyncio.sleep(_SWEEP_SECONDS)
        for turn in beats.due():
            agents[turn % count].beat()
        for turn in prints.due() if prints else ():
            agents[turn % count].print()
    for each in running:
        each.cancel()
    await asyncio.wait(running, timeout=10)
    used = resource.getrusage(resource.RUSAGE_SELF)
    report.cpu_seconds = used.ru_utime + used.ru_stime
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the home of the server")
    parser.add_argument("--first", type=int, required=True, help="index of the first rank")
    parser.add_argument("--count", type=int, required=True, help="number of ranks")
    parser.add_argument("--lines", type=float, default=0.0, help="lines a second of each rank")
    flags = parser.parse_args()
    runtime.raise_file_limit()
    report = asyncio.run(run(flags.home, flags.first, flags.count, flags.lines))
    print(json.dumps(asdict(report)), flush=True)


if __name__ == "__main__":
    main()
