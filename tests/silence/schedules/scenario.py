"""Run one schedule with a real agent and a real program, and check the invariants.

The schedule interrupts the connection between agent and server, or stops processes. The invariants are:
1. When the server may conclude from time alone that a rank has ended (`LeaseServer`), its lock is free.
2. No program ever begins beside another one of its rank, and none is left when its exit is recorded.
3. The log on the server is a prefix of what the program printed: no line is missing, none is there twice. If the
   program ended by itself and its exit was recorded, the log is complete.
4. After the connection is repaired, the rank ends: its exit is recorded, or the server gave it up and no process of
   it is left. Without repair no process is left either, unless the program had ended by itself: then its agent waits
   until it can report that.
5. An agent whose lease expired writes that into failure.txt.
6. The server gives up no rank for silences that are much shorter than its lease.

One case is exempt: while agent *and* supervisor are stopped, nothing can end the program. It must end as soon as one
of them continues (`_REACTION_SECONDS`).
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from hai_backend.launch import processes
from hai_backend.launch.base import RankKey
from hai_backend.launch.rank_dirs import path_of
from tests.silence import program, witness
from tests.silence.agents import Agents, agents, argv
from tests.silence.lease_server import LeaseServer, Rank
from tests.silence.network.proxy import BOTH, Direction, Proxy, proxy_to
from tests.silence.ranks import Pids, command, send
from tests.silence.schedules.schedule import STOPPED, Kind, Schedule, Silence

FORTH, BACK = Direction.FORTH, Direction.BACK
_SUCCESSOR_SECONDS = 30.0  # from its start to its end
_REACTION_SECONDS = 0.5
_CLEANUP_SECONDS = 10.0  # from the end of a rank until no process of it is left
_SETTLE_SECONDS = 5.0  # after healing: back-off, and an exit that is recorded


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass
class Scenario:
    """One rank of one task. It has its own home directory, and its own proxy to the server."""

    schedule: Schedule
    server: LeaseServer
    directory: Path
    proxy: Proxy
    agents: Agents
    rank: Rank
    began: float = field(default_factory=time.monotonic)
    notes: list[str] = field(default_factory=list)
    stopped: Counter[str] = field(default_factory=Counter)  # how many silences stop each process
    held: Counter[Direction] = field(default_factory=Counter)  # how many silences hold each one
    watchers_late_until: float = 0.0  # both watchers were stopped, and one has just continued

    @property
    def key(self) -> RankKey:
        return RankKey(self.schedule.seed + 1, 1, 0)

    @property
    def rank_dir(self) -> Path:
        return path_of(self.directory / "home", self.key)

    def note(self, what: str) -> None:
        """Note an event with its time, for the report of a violation."""
        self.notes.append(f"{time.monotonic() - self.began:7.2f} {what}")

    def require(self, true: bool, what: str) -> None:
        if not true:
            raise Violation(what)

    async def run(self) -> None:
        """Run the schedule. Raises Violation."""
        try:
            await self._run_silences()
            self._check_log()
        finally:
            self._continue_all()
            await self.agents.reap()
        await self._check_nothing_is_left()

    async def _run_silences(self) -> None:
        exited = asyncio.create_task(self.rank.exited.wait())
        expired = asyncio.create_task(self.rank.until_ended_by_time())
        silences = [asyncio.create_task(self._run_silence(s)) for s in self.schedule.silences]
        silences.append(asyncio.create_task(self._end_after_healing()))
        try:
            limit = max(self.schedule.healed_after, 0) + 2 * self.server.timing.fence_after
            async with asyncio.timeout(limit + _SETTLE_SECONDS + _program_seconds(self.schedule)):
                await asyncio.wait((exited, expired), return_when=asyncio.FIRST_COMPLETED)
            if self.rank.superseded:
                await self._check_superseded()
            else:
                self.note(f"exit {self.rank.exit_code} recorded")
                self.require(self._is_released(), "a process of the program is left after its exit")
            await self._heal(silences)
        except TimeoutError:
            raise Violation("the rank neither ended nor was it given up") from None
        finally:
            for work in (exited, expired, *silences):
                work.cancel()

    async def _heal(self, silences: list[asyncio.Task[None]]) -> None:
        """Repair the connection. A rank that was given up must also end after the repair."""
        finite = [
            w for w, s in zip(silences, self.schedule.silences, strict=False) if s.lasts < inf
        ]
        if self.rank.superseded and finite:
            await asyncio.wait(finite)
        if self.schedule.heals or self._program_ended_alone():
            await self.proxy.heal()
            self.rank.awake.set()

    async def _run_silence(self, silence: Silence) -> None:
        await asyncio.sleep(silence.after)
        self.note(str(silence.kind))
        undo = await self._start(silence.kind)
        if silence.lasts == inf:
            return
        await asyncio.sleep(silence.lasts)
        self.note(f"healed: {silence.kind}")
        undo()
        if silence.kind is Kind.REFUSE:
            await self.proxy.listen()

    async def _start(self, kind: Kind) -> Callable[[], None]:
        """Start a silence, and return the function that ends it."""
        proxy, directions = self.proxy, _DIRECTIONS.get(kind, BOTH)
        if kind in _HELD:
            self._hold(directions)
            return lambda: self._release(directions)
        if kind in _DROPPED:
            proxy.drop(*directions)
            return lambda: proxy.pass_on(*directions)
        if kind in _CLOSED:
            proxy.half_open()
            proxy.hang_up(directions[0])
            self._hold(BOTH)  # the side that sees the close cannot reconnect at once
            return self._pass_on_and_release
        if kind is Kind.REFUSE:
            await proxy.refuse()
            proxy.reset()
            return lambda: None
        if kind is Kind.SERVER:
            self.rank.awake.clear()
            return self.rank.awake.set
        if kind is Kind.DOUBT:
            self.rank.leads = False
            return lambda: setattr(self.rank, "leads", True)
        names = STOPPED[kind]
        self._stop(names)
        return lambda: self._continue(names)

    def _hold(self, directions: tuple[Direction, ...]) -> None:
        self.held.update(directions)
        self.proxy.hold(*directions)

    def _release(self, directions: tuple[Direction, ...]) -> None:
        """Release directions that no other silence holds."""
        self.held.subtract(directions)
        if free := [direction for direction in directions if self.held[direction] <= 0]:
            self.proxy.release(*free)

    def _pass_on_and_release(self) -> None:
        self.proxy.pass_on()
        self._release(BOTH)

    async def _end_after_healing(self) -> None:
        """Let the server end a program that would never end, as soon as the server reaches it."""
        if self.schedule.speaks and not (self.schedule.heals and self.schedule.steps):
            await asyncio.sleep(self.schedule.healed_after + 1.0)
            if not self.rank.superseded:
                self.note("the server ends the run")
                self.rank.end()

    async def _check_superseded(self) -> None:
        self.note("given up by the server: another run may start")
        self.require(not self.schedule.is_short, "it was given up after a short silence")
        if self._watchers_may_be_late():
            await self._wait_until_watchers_run()
        self.require(self._is_released(), "the program runs on beside its successor")
        if self.schedule.successor:
            await self._run_successor()

    def _watchers_may_be_late(self) -> bool:
        """Return whether both watchers are stopped, or one of them has just continued."""
        return self._watchers_are_stopped() or time.monotonic() < self.watchers_late_until

    async def _wait_until_watchers_run(self) -> None:
        if any(s.kind in STOPPED and s.lasts == inf for s in self.schedule.silences):
            self._continue_all()
        while self._watchers_are_stopped():  # noqa: ASYNC110 - a silence ends it
            await asyncio.sleep(0.02)
        await asyncio.sleep(_REACTION_SECONDS)

    def _program_ended_alone(self) -> bool:
        """Return whether the program ended by itself."""
        return (1, "end") in witness.words(self.directory, self.key.task_id)

    def _is_released(self) -> bool:
        return witness.is_free(self.directory, self.key.task_id)

    async def _run_successor(self) -> None:
        """Start the next run on a node that reaches the server, and wait for its end."""
        home = self.directory / "elsewhere"
        self.server.write_address(home)
        command_line = argv(self.directory, ["--steps", "20", "--pace", "0.01"])
        rank = await self.agents.start(home, RankKey(self.key.task_id, 2, 0), command_line)
        async with asyncio.timeout(_SUCCESSOR_SECONDS):
            await rank.exited.wait()
        self.require(rank.exit_code == 0, f"the successor ended with {rank.exit_code}")

    def _check_log(self) -> None:
        output = self.server.lines(self.key)
        found = [text for text in output if text.startswith("run ")]
        self.notes += [text for text in output if text not in found]
        if not self.schedule.prints:
            return
        self.note(f"{len(found)} lines are in the log")
        expected = [program.line(step) for step in range(len(found))]
        self.require(
            found == expected, f"lines were lost or doubled: {_first_difference(found, expected)}"
        )
        if self.rank.exit_code == 0:
            self.require(len(found) == self.schedule.steps, "the exit was recorded before the log")

    async def _check_nothing_is_left(self) -> None:
        deadline = time.monotonic() + _CLEANUP_SECONDS
        while left := [
            p.pid for p, _ in processes.marked_processes(self.directory / "home" / "run")
        ]:
            self.require(
                time.monotonic() < deadline, f"processes are left: {_describe_processes(left)}"
            )
            await asyncio.sleep(0.05)
        self.require(self._is_released(), "a process without the mark of the rank is left")
        command_line = witness.words(self.directory, self.key.task_id)
        self.require("beside" not in dict(map(reversed, command_line)), f"{command_line}")
        if self.rank.superseded:
            self._check_failure_text()

    def _check_failure_text(self) -> None:
        """Check that failure.txt explains the end, unless the program had ended by itself before the lease expired."""
        reason = self.rank_dir / "failure.txt"
        if not self._program_ended_alone():
            self.require(reason.exists() and bool(reason.read_text().strip()), "no failure.txt")
            self.note(f"failure.txt: {reason.read_text().strip()}")

    def _stop(self, names: tuple[str, ...]) -> None:
        pids = self._process_ids()
        for name in names:
            if name in pids:
                self.stopped[name] += 1
                send(pids[name], signal.SIGSTOP)

    def _continue(self, names: tuple[str, ...]) -> None:
        """Continue processes that no other silence stops."""
        pids, blind = self._process_ids(), self._watchers_are_stopped()
        for name in names:
            self.stopped[name] = max(0, self.stopped[name] - 1)
            if name in pids and not self.stopped[name]:
                send(pids[name], signal.SIGCONT)
        if blind and not self._watchers_are_stopped():
            self.watchers_late_until = time.monotonic() + _REACTION_SECONDS

    def _watchers_are_stopped(self) -> bool:
        return self.stopped["agent"] > 0 and self.stopped["supervisor"] > 0

    def _continue_all(self) -> None:
        self.stopped = Counter({name: 1 for name, times in self.stopped.items() if times})
        self._continue(("program", "agent", "supervisor"))

    def _process_ids(self) -> dict[str, int]:
        return Pids(self.rank_dir).named()


_DIRECTIONS = {
    Kind.HOLD_FORTH: (FORTH,),
    Kind.HOLD_BACK: (BACK,),
    Kind.DROP_FORTH: (FORTH,),
    Kind.DROP_BACK: (BACK,),
    Kind.AGENT_CLOSED: (FORTH,),
    Kind.SERVER_CLOSED: (BACK,),
}
_HELD = {Kind.HOLD, Kind.HOLD_FORTH, Kind.HOLD_BACK}
_DROPPED = {Kind.DROP, Kind.DROP_FORTH, Kind.DROP_BACK}
_CLOSED = {Kind.AGENT_CLOSED, Kind.SERVER_CLOSED}


async def run_scenario(schedule: Schedule, server: LeaseServer, directory: Path) -> list[str]:
    """Run a schedule, and return its notes. Raises Violation, with the notes."""
    async with _scenario(schedule, server, directory) as story:
        story.note("program started")
        try:
            await story.run()
        except (Violation, TimeoutError) as error:
            output = (story.rank_dir / "agent.log").read_text(errors="replace")[-2000:]
            report = "\n".join([str(schedule), *story.notes, f"WRONG: {error!r}", output])
            raise Violation(report) from None
    return story.notes


@asynccontextmanager
async def _scenario(
    schedule: Schedule, server: LeaseServer, directory: Path
) -> AsyncIterator[Scenario]:
    directory.mkdir()  # noqa: ASYNC240 - one call on a local disk
    home = directory / "home"
    async with proxy_to(server.address) as proxy, agents(server) as made:
        server.write_address(home, proxy.address)
        command_line = argv(directory, schedule.arguments())
        rank = await made.start(home, RankKey(schedule.seed + 1, 1, 0), command_line)
        yield Scenario(schedule, server, directory, proxy, made, rank)


def _program_seconds(schedule: Schedule) -> float:
    """Return the seconds that the program may take, with the time for which it is stopped."""
    stopped = sum(s.lasts for s in schedule.silences if s.lasts < inf)
    return 2 * schedule.steps * schedule.pace + stopped


def _first_difference(found: list[str], expected: list[str]) -> str:
    pairs = enumerate(zip(found, expected, strict=True))
    return next((f"line {i} is {got!r}" for i, (got, want) in pairs if got != want), "")


def _describe_processes(pids: list[int]) -> str:
    return ", ".join(f"{pid} {command(pid).decode(errors='replace')}" for pid in pids)
