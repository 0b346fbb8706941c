"""Controls one rank: welcome → go → started → (suspend) → exited → recorded → end. Everything runs in one event loop.

Receives messages of the server and calls of the program. Reports go to `Outgoing`, which sends them again after a lost
stream. `run` returns when the server has recorded how the program ended, or rejects this rank; in both cases no process
of the rank runs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket

from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.lease import Lease
from hai_backend.agent.output import agent_log
from hai_backend.agent.output.output import Output
from hai_backend.agent.output.spool import Spool
from hai_backend.agent.program import activation, preparation, program
from hai_backend.agent.program.calls import Calls
from hai_backend.agent.program.checkpoints import Checkpoints
from hai_backend.agent.program.control_file import Control
from hai_backend.agent.program.local_socket import LocalSocket
from hai_backend.agent.program.preparation import CannotStart
from hai_backend.agent.program.program import Program
from hai_backend.agent.program.reaper import Reaper
from hai_backend.agent.program.suspend import Notice, SuspendRequest, send_suspend_signal
from hai_backend.agent.program.usage import Usage
from hai_backend.agent.program.variables import program_variables
from hai_backend.agent.program.watchdog import Watchdog
from hai_backend.agent.rank_dir import RankDir
from hai_backend.agent.server.outgoing import Outgoing
from hai_backend.agent.server.session import RankRejected, Session
from hai_backend.agent.server.tunnels import Tunnels
from hai_backend.agent.services.services import Services
from hai_backend.agent.supervisor import EXIT_EXPIRED
from hai_backend.agent.task_group import Parts, until
from hai_backend.launch import processes

_FIRST_MEASURE_SECONDS = 2.0  # so that a short task is measured too
_MEASURE_SECONDS = 10.0
_WATCHDOG_GRACE_SECONDS = 2.0
_EXPIRED_GRACE_SECONDS = 2.0
_STOP_GRACE_SECONDS = 2.0
_LAST_LINES = 20
_ENDED_BEFORE_START = 143  # as if SIGTERM had met it


async def run(directory: RankDir, lease: Lease) -> int:
    """Run the agent and return its exit code. Raises errors that are bugs."""
    agent = RankAgent(directory, lease)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, agent.terminate, _STOP_GRACE_SECONDS)
    return await agent.run()


class RankAgent:
    """One per rank. Its public methods handle messages of the server, and signals."""

    def __init__(self, directory: RankDir, lease: Lease) -> None:
        self._directory = directory
        self._lease = lease
        self._timing = directory.timing()
        self._parts = Parts()
        self._me = directory.identity()
        self._reaper = Reaper()
        self._control = Control(directory.control)
        self._outgoing = Outgoing()
        self._spool = Spool(directory.spool)
        self._session = Session(directory, self._me.token, self, self._outgoing, self._spool, lease)
        self._output = Output(self._spool, self._session.wake, show=self._show_bar)
        self._watchdog = Watchdog(0, lambda: self._output.last_output_at, self._hung)
        self._suspending = SuspendRequest(self._control, self._outgoing)
        self._checkpoints = Checkpoints(self._outgoing, self._session.wake)
        self._notice = Notice(directory.notice)
        self._services = Services(
            self._reaper, self._spool, self._session.wake, self._report_services, self._parts
        )
        self._tunnels = Tunnels(self._me, self._session, self._services, self._reaper)
        self._calls = Calls(
            self._control,
            self._outgoing,
            self._suspending,
            self._watchdog,
            self._checkpoints,
            self._session.wake,
            self._notice.saved,
        )
        self._socket = LocalSocket(directory.socket, self._calls.table())
        self._port = _free_port()
        self._free_port = int(self._port.getsockname()[1])
        self._welcome: pb.AgentWelcome | None = None
        self._starting = False
        self._ending: float | None = None  # grace, once asked to end
        self._program: Program | None = None
        self._environment_lock = ""
        self._idle_seconds: float | None = None  # of a dev container
        self._owner_token = ""  # the same
        self._over = asyncio.Event()
        self._exit_code = 0

    async def run(self) -> int:
        """See the module. Raises errors that are bugs, in an exception group."""
        await self._socket.open()
        try:
            async with asyncio.TaskGroup() as group:
                self._parts.open(group)
                self._parts.keep_running("the connection to the server", self._attach())
                self._parts.keep_running("the heartbeat", self._beat())
                self._parts.keep_running("the end before the lease", self._end_before_expiry())
                await self._over.wait()
                self._parts.close()
        finally:
            await asyncio.to_thread(self._directory.end_everything)
            self._socket.close()
        return self._exit_code

    def hello(self, address: str) -> pb.AgentHello:
        """The first message on each stream."""
        return pb.AgentHello(
            task_id=self._me.task_id,
            run=self._me.run,
            rank=self._me.rank,
            address=address,
            free_port=self._free_port,
            started=self._program is not None,
        )

    def take(self, response: pb.AttachResponse) -> None:
        """A message of the server."""
        match response.WhichOneof("message"):
            case "welcome":
                self._welcomed(response.welcome)
            case "go":
                self._go(response.go)
            case "suspend":
                self._parts.begin("a suspension", self._suspend(response.suspend))
            case "suspend_at":
                self._suspending.agree(response.suspend_at.step)
            case "end":
                self._end(response.end.grace_seconds)
            case "exit_recorded":
                self._exit()
            case "whole_life_state":
                self._calls.state_is(response.whole_life_state.value)
            case "priority":
                self._calls.priority_is(response.priority.error)
            case "open_tunnel":
                self._parts.begin("a tunnel", self._tunnels.carry(response.open_tunnel))
            case "control_service":
                self._services.control(response.control_service)

    def terminate(self, grace: float) -> None:
        """Handle SIGTERM: let the program save if there is time for it, then end it."""
        if self._program is None or not self._me.leave_within:
            return self.stop(grace)
        request = _suspend_by_node(self._me.leave_within)
        self._parts.begin("a suspension", self._suspend(request))
        asyncio.get_running_loop().call_later(self._me.leave_within, self.stop, grace)

    def stop(self, grace: float) -> None:
        """End the program, and report it if the server can be reached in time."""
        self._end(grace)
        asyncio.get_running_loop().call_later(2 * grace, self._exit)

    def _welcomed(self, welcome: pb.AgentWelcome) -> None:
        self._control.set_whole_life_state(welcome.whole_life_state)
        self._owner_token = welcome.owner_token or self._owner_token
        if self._owner_token:
            try:
                self._directory.write_profile(self._owner_token)
            except OSError as error:  # a full disk: the container works, `hai` in it does not
                agent_log.note(f"the profile for `hai` cannot be written: {error}")
        if self._welcome is None:
            self._welcome = welcome
            self._watchdog.limit(welcome.watchdog_seconds)

    def _go(self, go: pb.Go) -> None:
        if not self._starting and self._ending is None:
            self._starting = True
            self._parts.begin("the program", self._run_program(go))

    async def _run_program(self, go: pb.Go) -> None:
        try:
            self._program = await self._start(go)
        except CannotStart as error:
            if self._ending is not None:
                return  # the end has been reported, and is why
            self._output.say(str(error))
            failed = pb.StartFailed(reason=str(error))
            self._report("start_failed", pb.AttachRequest(start_failed=failed))
            return
        self._checkpoints.begin()
        started = pb.ProgramStarted(pid=self._program.pid, environment_lock=self._environment_lock)
        self._outgoing.keep("started", pb.AttachRequest(started=started))
        self._session.wake()
        self._watchdog.start()
        code = await self._program.wait(saving=self._may_be_saving)
        self._watchdog.stop()
        self._ended(code)

    async def _start(self, go: pb.Go) -> Program:
        assert self._welcome is not None
        workspace = await preparation.workspace_of(self._welcome, self._directory, self._reaper)
        active = await activation.activation(
            self._welcome, self._directory, self._me, self._reaper, self._output.say
        )
        self._environment_lock = active.lock_hash if active else ""
        variables = program_variables(
            os.environ, self._welcome, go, self._directory, self._me, workspace, active
        )
        argv = preparation.with_a_shell(self._welcome.argv, variables)
        preparation.check_program(argv, workspace, variables)
        if self._ending is not None:
            raise CannotStart("it was ended before it started")
        self._port.close()  # the program binds it next
        started = program.start(
            argv, workspace, variables, self._output, self._reaper, self._directory, self._parts
        )
        self._tunnels.program_started(workspace, variables)
        self._services.begin(self._welcome.services, self._directory.path, workspace, variables)
        return started

    async def _suspend(self, request: pb.SuspendRequested) -> None:
        if self._suspending.requested:
            return
        await self._suspending.request_suspend()
        self._session.wake()
        if self._program is None or self._welcome is None:
            return
        send_suspend_signal(self._program.pid, self._welcome.suspend_signal)
        if self._welcome.container:
            await self._suspend_with_notice(request)

    async def _suspend_with_notice(self, request: pb.SuspendRequested) -> None:
        """Suspend a dev container: its program does not know the suspend protocol, so notify the people in it."""
        self._suspending.acknowledge()
        self._session.wake()
        await self._notice.give(request)
        self._suspending.give_way()
        self._session.wake()

    def _may_be_saving(self) -> bool:
        signalled = self._welcome is not None and bool(self._welcome.suspend_signal)
        return signalled and self._suspending.requested and self._ending is None

    def _end(self, grace: float) -> None:
        first = self._ending is None
        self._ending = grace
        self._services.terminate()
        if self._program is not None:
            self._program.end(grace)
        elif first:
            self._parts.begin("the end before the start", self._end_before_start())

    async def _end_before_start(self) -> None:
        """Only a git clone or an unpacking may be running."""
        await program.end_everything(self._directory)
        self._ended(_ENDED_BEFORE_START)

    def _ended(self, code: int) -> None:
        """No process of the rank runs. The server may start the next run as soon as it gets this report."""
        self._lease.release()
        self._tunnels.program_ended()
        if self._exit_code == EXIT_EXPIRED:
            # The program has not failed: a server that is back must start it again. The agent leaves a moment later
            # (`stop`), so that what the program printed at last can still be sent.
            return
        self._checkpoints.flush()
        exited = pb.ProgramExited(
            exit_code=code,
            last_lines=self._output.last_lines(_LAST_LINES) if code else "",
            yielded=self._suspending.yielded,
        )
        self._outgoing.keep("exited", pb.AttachRequest(exited=exited), after_log=True)
        self._session.wake()

    def _show_bar(self, bar: str) -> None:
        self._outgoing.drop("bar")
        if bar:
            self._outgoing.put("bar", pb.AttachRequest(bar=pb.BarDrawn(text=bar)))
            self._session.wake()

    def _hung(self, silent_seconds: float) -> None:
        """Nothing was printed for too long."""
        assert self._program is not None
        self._output.say(f"nothing printed for {silent_seconds:.0f} s: the program counts as hung")
        fired = pb.WatchdogFired(silent_seconds=silent_seconds)
        self._report("watchdog", pb.AttachRequest(watchdog_fired=fired))
        self._program.end(_WATCHDOG_GRACE_SECONDS)

    def _report(self, kind: str, message: pb.AttachRequest) -> None:
        self._outgoing.keep(kind, message)
        self._session.wake()

    async def _attach(self) -> None:
        try:
            await self._session.run()
        except RankRejected as error:
            agent_log.note(f"leaving: {error}")
            self._exit()
            await asyncio.Event().wait()  # `run` cancels all parts

    async def _end_before_expiry(self) -> None:
        """End the program shortly before the lease expires, with a grace period; the supervisor grants none."""
        await until(lambda: self._lease.remaining - self._timing.end_before)
        why = f"no server has renewed the lease of this rank for {self._timing.lease:.0f} s"
        agent_log.note(f"ending: {why}")
        self._directory.report_failure(f"{why}: its program was ended")
        self._exit_code = EXIT_EXPIRED
        self.stop(min(_EXPIRED_GRACE_SECONDS, self._timing.end_before / 3))
        await asyncio.Event().wait()

    async def _beat(self) -> None:
        clock, usage = asyncio.get_running_loop().time, Usage(self._me.gpu_indices or ())
        measured_at = clock() + _FIRST_MEASURE_SECONDS - _MEASURE_SECONDS
        wait = min(_FIRST_MEASURE_SECONDS, self._timing.interval)
        while True:
            await asyncio.sleep(wait)
            wait = self._timing.interval
            if clock() - measured_at < _MEASURE_SECONDS:
                self._session.beat()
                continue
            measured_at = clock()
            if self._welcome and self._welcome.container:
                await self._report_idleness()
            self._session.beat(usage.measure(processes.descendants(os.getpid())))

    async def _report_idleness(self) -> None:
        self._idle_seconds = 0.0 if self._tunnels.shells else await self._services.idle_seconds()
        self._report_services()

    def _report_services(self) -> None:
        report = pb.ServicesReported(services=self._services.statuses())
        if self._idle_seconds is not None:
            report.idle_seconds = self._idle_seconds
        self._report("services", pb.AttachRequest(services=report))

    def _exit(self) -> None:
        self._over.set()


def _suspend_by_node(seconds: float) -> pb.SuspendRequested:
    return pb.SuspendRequested(
        save_within_seconds=seconds, reason="the node asks the rank to leave"
    )


def _free_port() -> socket.socket:
    """A port that is reserved until the program starts."""
    port = socket.socket()
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port.bind(("", 0))
    return port
