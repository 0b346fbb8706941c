"""Plays one schedule with a real agent, a real program and silence between them and the server, and checks it.

What must hold, whatever falls silent:
1. When the server may conclude from time alone that a rank has ended (`LeaseServer`), its lock is free.
2. No program ever begins beside another one of its rank, and none is left when its exit is recorded.
3. What the server has of a log is a beginning of what the program printed: nothing lost, nothing doubled. A program
   that ended by itself and whose exit was recorded has left all of it.
4. After healing, the rank ends: its exit is recorded, or it was given up and nothing of it is left. If nothing
   heals, nothing is left either, unless the program had ended by itself: then its agent waits to say so.
5. An agent whose lease expired says so in failure.txt.
6. No rank is given up for silences that are much shorter than its lease.

One thing no watcher of its own machine can do: while agent *and* supervisor are stopped, nobody ends the program. Then
it must end at once when one of them goes on (`_AWAKE_SECONDS`).
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
from tests.silence.proxy import BOTH, Direction, Proxy, proxy_to
from tests.silence.ranks import Pids, command, send
from tests.silence.schedule import STOPPED, Kind, Schedule, Silence

FORTH, BACK = Direction.FORTH, Direction.BACK
_SUCCESSOR_SECONDS = 30.0  # from its start to its end
_AWAKE_SECONDS = 0.5
_GONE_SECONDS = 10.0  # from the end of a rank's story until nothing of it is left
_SETTLE_SECONDS = 5.0  # after healing: back-off, and an exit that is recorded


class Wrong(AssertionError):
    """Something that must hold did not."""


@dataclass
class Story:
    """One rank of one task, in a home of its own behind a proxy of its own."""

    schedule: Schedule
    server: LeaseServer
    directory: Path
    proxy: Proxy
    agents: Agents
    rank: Rank
    began: float = field(default_factory=time.monotonic)
    log: list[str] = field(default_factory=list)
    stopped: Counter[str] = field(default_factory=Counter)  # agent, supervisor, program: how often
    held: Counter[Direction] = field(default_factory=Counter)  # by how many silences
    blind_until: float = 0.0  # shortly after one of both watchers went on

    @property
    def key(self) -> RankKey:
        return RankKey(self.schedule.seed + 1, 1, 0)

    @property
    def rank_dir(self) -> Path:
        return path_of(self.directory / "home", self.key)

    def tell(self, what: str) -> None:
        """For who has to find out why something was wrong."""
        self.log.append(f"{time.monotonic() - self.began:7.2f} {what}")

    def demand(self, true: bool, what: str) -> None:
        if not true:
            raise Wrong(what)

    async def play(self) -> None:
        """Raises Wrong."""
        try:
            await self._silences()
            self._check_log()
        finally:
            self._wake_all()
            await self.agents.reap()
        await self._nothing_is_left()

    async def _silences(self) -> None:
        exited = asyncio.create_task(self.rank.exited.wait())
        expired = asyncio.create_task(self.rank.until_ended_by_time())
        silences = [asyncio.create_task(self._silence(s)) for s in self.schedule.silences]
        silences.append(asyncio.create_task(self._end_after_healing()))
        try:
            limit = max(self.schedule.healed_after, 0) + 2 * self.server.timing.fence_after
            async with asyncio.timeout(limit + _SETTLE_SECONDS + _life(self.schedule)):
                await asyncio.wait((exited, expired), return_when=asyncio.FIRST_COMPLETED)
            if self.rank.superseded:
                await self._superseded()
            else:
                self.tell(f"exit {self.rank.exit_code} recorded")
                self.demand(self._free(), "a process of the program is left after its exit")
            await self._healed(silences)
        except TimeoutError:
            raise Wrong("the rank neither ended nor was it given up") from None
        finally:
            for work in (exited, expired, *silences):
                work.cancel()

    async def _healed(self, silences: list[asyncio.Task[None]]) -> None:
        """Who was given up must end when it can speak again, too; who has ended need not wait for that."""
        finite = [
            w for w, s in zip(silences, self.schedule.silences, strict=False) if s.lasts < inf
        ]
        if self.rank.superseded and finite:
            await asyncio.wait(finite)
        if self.schedule.heals or self._ended():
            await self.proxy.heal()
            self.rank.awake.set()

    async def _silence(self, silence: Silence) -> None:
        await asyncio.sleep(silence.after)
        self.tell(str(silence.kind))
        undo = await self._begin(silence.kind)
        if silence.lasts == inf:
            return
        await asyncio.sleep(silence.lasts)
        self.tell(f"healed: {silence.kind}")
        undo()
        if silence.kind is Kind.REFUSE:
            await self.proxy.listen()

    async def _begin(self, kind: Kind) -> Callable[[], None]:
        """Fall silent; answers how to heal it."""
        proxy, ways = self.proxy, _WAYS.get(kind, BOTH)
        if kind in _HELD:
            self._hold(ways)
            return lambda: self._release(ways)
        if kind in _DROPPED:
            proxy.drop(*ways)
            return lambda: proxy.pass_on(*ways)
        if kind in _CLOSED:
            proxy.half_open()
            proxy.hang_up(ways[0])
            self._hold(BOTH)  # who sees the close cannot come back at once
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
        return lambda: self._go_on(names)

    def _hold(self, ways: tuple[Direction, ...]) -> None:
        self.held.update(ways)
        self.proxy.hold(*ways)

    def _release(self, ways: tuple[Direction, ...]) -> None:
        """What another silence holds stays held."""
        self.held.subtract(ways)
        if free := [way for way in ways if self.held[way] <= 0]:
            self.proxy.release(*free)

    def _pass_on_and_release(self) -> None:
        self.proxy.pass_on()
        self._release(BOTH)

    async def _end_after_healing(self) -> None:
        """A program that would run for ever, or is stopped for ever, is ended by the server once it can be reached."""
        if self.schedule.speaks and not (self.schedule.heals and self.schedule.steps):
            await asyncio.sleep(self.schedule.healed_after + 1.0)
            if not self.rank.superseded:
                self.tell("the server ends the run")
                self.rank.end()

    async def _superseded(self) -> None:
        self.tell("given up by the server: another run may start")
        self.demand(not self.schedule.is_short, "it was given up after a short silence")
        if self._blind():
            await self._free_once_awake()
        self.demand(self._free(), "the program runs on beside its successor")
        if self.schedule.successor:
            await self._successor()

    def _blind(self) -> bool:
        """Both watchers are stopped, or one of them has only just gone on."""
        return self._watchers_are_stopped() or time.monotonic() < self.blind_until

    async def _free_once_awake(self) -> None:
        if any(s.kind in STOPPED and s.lasts == inf for s in self.schedule.silences):
            self._wake_all()
        while self._watchers_are_stopped():  # noqa: ASYNC110 - a silence that heals
            await asyncio.sleep(0.02)
        await asyncio.sleep(_AWAKE_SECONDS)

    def _ended(self) -> bool:
        """Whether the program ended by itself."""
        return (1, "end") in witness.words(self.directory, self.key.task_id)

    def _free(self) -> bool:
        return witness.is_free(self.directory, self.key.task_id)

    async def _successor(self) -> None:
        """The next run, on a node that hears the server."""
        home = self.directory / "elsewhere"
        self.server.write_address(home)
        words = argv(self.directory, ["--steps", "20", "--pace", "0.01"])
        rank = await self.agents.start(home, RankKey(self.key.task_id, 2, 0), words)
        async with asyncio.timeout(_SUCCESSOR_SECONDS):
            await rank.exited.wait()
        self.demand(rank.exit_code == 0, f"the successor ended with {rank.exit_code}")

    def _check_log(self) -> None:
        said = self.server.lines(self.key)
        found = [text for text in said if text.startswith("run ")]
        self.log += [text for text in said if text not in found]
        if not self.schedule.prints:
            return
        self.tell(f"{len(found)} lines are kept")
        expected = [program.line(step) for step in range(len(found))]
        self.demand(found == expected, f"lines were lost or doubled: {_differ(found, expected)}")
        if self.rank.exit_code == 0:
            self.demand(len(found) == self.schedule.steps, "the exit was recorded before the log")

    async def _nothing_is_left(self) -> None:
        deadline = time.monotonic() + _GONE_SECONDS
        while left := [
            p.pid for p, _ in processes.marked_processes(self.directory / "home" / "run")
        ]:
            self.demand(time.monotonic() < deadline, f"processes are left: {_names(left)}")
            await asyncio.sleep(0.05)
        self.demand(self._free(), "a process without the mark of the rank is left")
        words = witness.words(self.directory, self.key.task_id)
        self.demand("beside" not in dict(map(reversed, words)), f"{words}")
        if self.rank.superseded:
            self._explained()

    def _explained(self) -> None:
        """Its lease expired, so the agent's end was not expected, unless the rank had ended before unheard."""
        reason = self.rank_dir / "failure.txt"
        if not self._ended():
            self.demand(reason.exists() and bool(reason.read_text().strip()), "no failure.txt")
            self.tell(f"failure.txt: {reason.read_text().strip()}")

    def _stop(self, names: tuple[str, ...]) -> None:
        pids = self._pids()
        for name in names:
            if name in pids:
                self.stopped[name] += 1
                send(pids[name], signal.SIGSTOP)

    def _go_on(self, names: tuple[str, ...]) -> None:
        """Who is stopped by another silence stays stopped."""
        pids, blind = self._pids(), self._watchers_are_stopped()
        for name in names:
            self.stopped[name] = max(0, self.stopped[name] - 1)
            if name in pids and not self.stopped[name]:
                send(pids[name], signal.SIGCONT)
        if blind and not self._watchers_are_stopped():
            self.blind_until = time.monotonic() + _AWAKE_SECONDS

    def _watchers_are_stopped(self) -> bool:
        return self.stopped["agent"] > 0 and self.stopped["supervisor"] > 0

    def _wake_all(self) -> None:
        self.stopped = Counter({name: 1 for name, times in self.stopped.items() if times})
        self._go_on(("program", "agent", "supervisor"))

    def _pids(self) -> dict[str, int]:
        return Pids(self.rank_dir).named()


_WAYS = {
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


async def play(schedule: Schedule, server: LeaseServer, directory: Path) -> list[str]:
    """The story, for people. Raises Wrong, with the story."""
    async with _story(schedule, server, directory) as story:
        story.tell("program started")
        try:
            await story.play()
        except (Wrong, TimeoutError) as error:
            said = (story.rank_dir / "agent.log").read_text(errors="replace")[-2000:]
            told = "\n".join([str(schedule), *story.log, f"WRONG: {error!r}", said])
            raise Wrong(told) from None
    return story.log


@asynccontextmanager
async def _story(schedule: Schedule, server: LeaseServer, directory: Path) -> AsyncIterator[Story]:
    directory.mkdir()  # noqa: ASYNC240 - one call on a local disk
    home = directory / "home"
    async with proxy_to(server.address) as proxy, agents(server) as made:
        server.write_address(home, proxy.address)
        words = argv(directory, schedule.arguments())
        rank = await made.start(home, RankKey(schedule.seed + 1, 1, 0), words)
        yield Story(schedule, server, directory, proxy, made, rank)


def _life(schedule: Schedule) -> float:
    """Seconds that the program may take, also where it was stopped for a while."""
    stopped = sum(s.lasts for s in schedule.silences if s.lasts < inf)
    return 2 * schedule.steps * schedule.pace + stopped


def _differ(found: list[str], expected: list[str]) -> str:
    pairs = enumerate(zip(found, expected, strict=True))
    return next((f"line {i} is {got!r}" for i, (got, want) in pairs if got != want), "")


def _names(pids: list[int]) -> str:
    return ", ".join(f"{pid} {command(pid).decode(errors='replace')}" for pid in pids)
