"""Simulated agents, which run in the pods of the fake cluster.

The session, the outbox, the spool and the lease are those of real agents. The processes are models: a program, an
agent that can be frozen, and a supervisor that ends both when the lease has expired, even if the agent is frozen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.coroutines import wait_out
from hai_backend.agent.lease import Expired, Lease
from hai_backend.agent.output.spool import Spool
from hai_backend.agent.rank_dir import RankDir, ServerAddress
from hai_backend.agent.server.connection import Connect
from hai_backend.agent.server.outgoing import Outgoing
from hai_backend.agent.server.session import RankRejected, Session
from hai_backend.agent.supervisor import EXIT_BUG, EXIT_EXPIRED
from hai_backend.auth import tokens
from hai_backend.domain.timing import KILL_SECONDS, PAUSE_SECONDS, Timing
from hai_backend.launch.base import RankKey
from hai_backend.logs.lines import stamp
from hai_backend.testing.kube.kubelet.pod_state import LocalPod, Running
from tests.support.simulation.program import Program, ProgramBehavior, ProgramCallbacks
from tests.support.simulation.server import SECRET, TIMING
from tests.support.virtual_time import SimulatedProcess, run_outside

if TYPE_CHECKING:
    from tests.support.simulation.agent_pool import AgentPool

_END_BEFORE_START = 143
_STOP_GRACE_SECONDS = 2.0
_EXPIRED_GRACE_SECONDS = 2.0
_LATE_SECONDS = 0.5  # a timer that fires so late shows that the process was frozen
_STATE_LINES = 3  # a program sets its whole-life state with every third line


@dataclass(frozen=True, slots=True)
class AgentComponents:
    """The parts of agents. A test may replace one with a faulty part."""

    timing: Timing = TIMING
    lease: Callable[[float, Callable[[], float]], Lease] = Lease
    session: type[Session] = Session
    pause_seconds: float = PAUSE_SECONDS  # how late a supervisor may run
    checks_first: bool = True  # a supervisor that thaws checks the lease before anything else runs
    ends_before: bool = True  # an agent ends its program a little before the lease expires


class AgentDir(RankDir):
    """A rank directory that has the values a session reads, but no files except the spool."""

    def __init__(self, path: Path, addresses: tuple[str, ...], timing: Timing) -> None:
        super().__init__(path)
        self._servers = tuple(ServerAddress(address) for address in addresses)
        self._timing = timing

    def servers(self) -> tuple[ServerAddress, ...]:
        return self._servers

    def timing(self) -> Timing:
        return self._timing

    def exists(self) -> bool:
        return True


class SimulatedAgent:
    """One rank's supervisor, agent and program. Implements hai_backend.agent.server.session.Peer."""

    def __init__(self, pool: AgentPool, local: LocalPod, key: RankKey, connect: Connect) -> None:
        self.key, self.node, self.local = key, local.node, local
        self.process, self.supervisor = (
            SimulatedProcess(f"agent {key}"),
            SimulatedProcess(f"supervisor {key}"),
        )
        self.printed = 0  # how many lines the agent has read
        self.recorded = False  # whether the server knows how the program ended
        self.over = False
        self.woke_dying = False  # whether the machine thawed after the lease had expired
        self._pool, self._parts = pool, pool.parts
        self._random = random = Random(f"{pool.random.random()} {key}")
        drift = random.uniform(-0.0005, 0.0005)
        loop = asyncio.get_running_loop()
        self.lease = self._parts.lease(
            self._parts.timing.lease, lambda: 50.0 + loop.time() * (1 + drift)
        )
        directory = AgentDir(pool.directory(local), pool.network.addresses, self._parts.timing)
        self.outgoing, self.spool = Outgoing(), Spool(directory.spool)
        token = tokens.run_token(SECRET, key.task_id, key.run, key.rank)
        self._session = self._parts.session(
            directory, token, self, self.outgoing, self.spool, self.lease, connect, pace=1.0
        )
        callbacks = ProgramCallbacks(
            self._work, self._read_line, self._acknowledge, self._yield, self._reap
        )
        behavior = ProgramBehavior.of(random, KILL_SECONDS)
        self.program = Program(str(key), behavior, random, callbacks)
        self._going = self._suspended = self._yielded = False
        self._ending: float | None = None
        self._kill: asyncio.TimerHandle | None = None
        self._state = 0
        self._floor = pool.states[key.task_id]  # stored before this run
        self._exit_code = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> bool:
        """Whether its program runs. What stands on a frozen machine does not, until that wakes."""
        frozen_nodes = self.supervisor.frozen or self.woke_dying
        return self.program.exists and self.alive and not frozen_nodes

    @property
    def alive(self) -> bool:
        """Whether its container exists."""
        known = self._pool.kubelet.pods.get(self.local.pod.uid) is self.local
        return known and isinstance(self.local.main_containers[0].state, Running)

    def begin(self) -> None:
        """Start the agent in the container that has just started."""
        self.supervisor.run(self._arm)
        for part in (self._attach(), self._beat(), self._end_before_expiry()):
            self._begin(part)

    # The methods of Peer, which the session calls.

    def hello(self, address: str) -> pb.AgentHello:
        key = self.key
        return pb.AgentHello(
            task_id=key.task_id,
            run=key.run,
            rank=key.rank,
            address=address,
            free_port=4000,
            started=self._going,
        )

    def handle(self, response: pb.AttachResponse) -> None:
        match response.WhichOneof("message"):
            case "welcome":
                value = response.welcome.whole_life_state
                self._pool.state_received(self.key, value, self._floor)
                self._state = max(self._state, value)
            case "go":
                self._go()
            case "suspend":
                self._suspend()
            case "end":
                self._end(response.end.grace_seconds)
            case "whole_life_state":
                self._state_is(response.whole_life_state.value)
            case "exit_recorded":
                self.recorded = True
                self.leave(0)

    # What the kubelet and the machine do to the agent.

    def stop(self) -> None:
        """Handle the SIGTERM of the kubelet, which the supervisor passes on."""
        if not self.over:
            self.process.run(asyncio.get_running_loop().call_soon, self._stop, _STOP_GRACE_SECONDS)

    def vanish(self) -> None:
        """End the agent and its program at once, because the container is gone."""
        self._stand_down()
        self.program.end(137)

    def freeze(self) -> None:
        """Freeze all processes of the rank, because the whole machine is frozen."""
        for process in (self.supervisor, self.process, self.program.process):
            process.freeze()

    def thaw(self) -> None:
        """Thaw all processes of the rank. The supervisor is the first to run, and checks the lease."""
        for process in (self.supervisor, self.process, self.program.process):
            process.thaw()

    # The supervisor.

    def _arm(self, due: float | None = None, late: bool = False) -> None:
        """Wait for the deadline of the lease, and end everything after it, up to `pause_seconds` late."""
        loop = asyncio.get_running_loop()
        if self.over:
            return
        if self.lease.expired and (late or self._stood_still(due)):
            self._pool.log(f"{self.key} on {self.node} has lost its lease")
            return self.leave(EXIT_EXPIRED)
        if self.lease.expired:
            wait = self._random.choice((0.0, self._random.uniform(0.0, self._parts.pause_seconds)))
            loop.call_later(wait, self._arm, None, True)
        elif self.lease.remaining < 1e6:
            loop.call_later(self.lease.remaining, self._arm, loop.time() + self.lease.remaining)

    def _stood_still(self, due: float | None) -> bool:
        """Return whether the timer fired so late that the process must have been frozen."""
        late = 0.0 if due is None else asyncio.get_running_loop().time() - due
        return late > _LATE_SECONDS and self._parts.checks_first

    def leave(self, code: int) -> None:
        """End the program and the container, because the agent has ended or is to be killed."""
        if self.over:
            return
        self._exit_code = code
        self._stand_down()
        if self.program.exists:
            self.program.kill()
        else:
            self._end_container()

    def _stand_down(self) -> None:
        """Cancel the coroutines of the agent, and thaw its processes for good."""
        if not self.over:
            self.over = True
            for task in self._tasks:
                task.cancel()
            self.process.release()
            self.supervisor.release()

    def _end_container(self) -> None:
        """Report to the cluster that the container has exited."""
        if not self.alive:
            return
        kubelet = self._pool.kubelet
        for container in self.local.main_containers:
            container.end(self._exit_code, kubelet.api.timers.now())
        run_outside(kubelet.publish, self.local)

    # The agent.

    async def _attach(self) -> None:
        try:
            await self._session.run()
        except RankRejected as error:
            self._pool.log(f"{self.key} on {self.node} is given up: {error}")
            self.leave(0)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._parts.timing.interval)
            self._session.beat()

    async def _end_before_expiry(self) -> None:
        """End the program a little before the lease expires."""
        if not self._parts.ends_before:
            return
        await wait_out(lambda: self.lease.remaining - self._parts.timing.end_before)
        self._exit_code = EXIT_EXPIRED
        self._stop(min(_EXPIRED_GRACE_SECONDS, self._parts.timing.end_before / 3))

    def _stop(self, grace: float) -> None:
        if not self.over:
            self._end(grace)
            asyncio.get_running_loop().call_later(2 * grace, self.leave, self._exit_code)

    def _go(self) -> None:
        if not self._going and self._ending is None:
            self._going = True
            self.program.begin()
            self._pool.log(f"{self.key} runs on {self.node}")
            self._pool.check(self)
            run_outside(self._pool.started, self.key)
            if self._suspended:
                self.program.suspend()
            self._say("started", pb.AttachRequest(started=pb.ProgramStarted(pid=1)))

    def _suspend(self) -> None:
        if not self._suspended:
            self._suspended = True
            self._say("step", pb.AttachRequest(step_reported=pb.StepReported(step=-1)))
            self.program.suspend()

    def _end(self, grace: float) -> None:
        first, self._ending = self._ending is None, grace
        if not self._going:
            return self._ended(_END_BEFORE_START) if first else None
        self.program.terminate()
        if self._kill is None:
            loop = asyncio.get_running_loop()
            self._kill = self.process.run(loop.call_later, grace, self.program.kill)

    def _ended(self, code: int) -> None:
        self.lease.release()
        if self._exit_code == EXIT_EXPIRED:
            return self.leave(EXIT_EXPIRED)
        exited = pb.ProgramExited(exit_code=code, yielded=self._yielded)
        self.outgoing.keep("exited", pb.AttachRequest(exited=exited), after_log=True)
        self._session.wake()

    def _state_is(self, value: int) -> None:
        self._pool.state_saved(self.key, value)
        if value == self._state:
            self.outgoing.drop("state")

    def _say(self, kind: str, message: pb.AttachRequest) -> None:
        self.outgoing.keep(kind, message)
        self._session.wake()

    # Callbacks of the program. The agent handles them when it is not frozen.

    def _reap(self, code: int) -> None:
        if self.over:
            return self._end_container()
        self._soon(self._ended, code)

    def _read_line(self) -> None:
        self._soon(self._append)

    def _acknowledge(self) -> None:
        said = pb.AttachRequest(suspend_acknowledged=pb.SuspendAcknowledged())
        self._soon(self._say, "acknowledged", said)

    def _yield(self) -> None:
        self._soon(self._note_yield)

    def _note_yield(self) -> None:
        self._yielded = True
        self._say("yielded", pb.AttachRequest(yielded=pb.Yielded()))

    def _append(self) -> None:
        """Store a line of the program in the spool. Rank 0 changes the whole-life state with every third line."""
        self.printed += 1
        now = self._pool.kubelet.api.timers.now()
        self.spool.append(stamp(now) + f"line {self.printed}\n".encode())
        if self.key.rank == 0 and self.printed % _STATE_LINES == 0:
            self._state += 1
            changed = pb.WholeLifeStateChanged(value=self._state)
            self.outgoing.keep("state", pb.AttachRequest(whole_life_state=changed))
        self._session.wake()

    def _work(self) -> bool:
        """Do one second of work, and return whether all work is done. Rank 0 records the progress for the next run."""
        left = self._pool.work[self.key.task_id]
        if self.key.rank == 0 and left > 0:
            self._pool.work[self.key.task_id] = left - 1.0
        return left <= 0

    def _soon(self, action: Callable[..., object], *args: Any) -> None:
        """Run an action when the agent is not frozen, unless it has ended."""
        loop = asyncio.get_running_loop()
        self.process.run(loop.call_soon, self._unless_over, action, *args)

    def _unless_over(self, action: Callable[..., object], *args: Any) -> None:
        if not self.over:
            action(*args)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.process.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._part_ended)

    def _part_ended(self, task: asyncio.Task[None]) -> None:
        """End the agent when one of its coroutines has ended. Any error but an expired lease fails the simulation."""
        self._tasks.discard(task)
        if task.cancelled():
            if not self.over:
                self._pool.failures.append(AssertionError(f"a part of {self.key} was cancelled"))
                self.leave(EXIT_BUG)
        elif (error := task.exception()) is not None:
            if not _is_expired(error):
                self._pool.failures.append(error)
            self.leave(EXIT_BUG)


def _is_expired(error: BaseException) -> bool:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return isinstance(error, Expired)
