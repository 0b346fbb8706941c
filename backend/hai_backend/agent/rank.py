"""The agent of one rank. It runs in one event loop: welcome → go → started → (suspend) → exited → recorded → end.

It handles messages of the server and calls of the program. Its reports are queued in `Outgoing`, which sends them again
after a stream was lost. `run` returns when the server has recorded the exit of the program, or rejects this rank. In
both cases, no process of the rank runs any more.
"""

from __future__ import annotations

import asyncio
import os
import signal

from hai.task import env
from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.coroutines import Coroutines, wait_out
from hai_backend.agent.lease import Lease
from hai_backend.agent.output.output import Output
from hai_backend.agent.output.spool import Spool
from hai_backend.agent.program import activation, preparation, program
from hai_backend.agent.program.calls import Calls
from hai_backend.agent.program.checkpoints import Checkpoints, remove_unfinished
from hai_backend.agent.program.control_file import ControlFile
from hai_backend.agent.program.local_socket import LocalSocket
from hai_backend.agent.program.preparation import CannotStart
from hai_backend.agent.program.program import Program
from hai_backend.agent.program.reaper import Reaper
from hai_backend.agent.program.save_progress import report_save_progress
from hai_backend.agent.program.staging import StagingDirectory
from hai_backend.agent.program.suspend import Notice, SuspendRequest, send_suspend_signal
from hai_backend.agent.program.usage import Usage
from hai_backend.agent.program.variables import program_variables
from hai_backend.agent.program.watchdog import Watchdog
from hai_backend.agent.rank_dir import RankDir, write_agent_log
from hai_backend.agent.server.outgoing import Outgoing
from hai_backend.agent.server.session import RankRejected, Session
from hai_backend.agent.server.tunnels import Tunnels
from hai_backend.agent.services.services import Services
from hai_backend.agent.supervisor import EXIT_EXPIRED
from hai_backend.launch import processes

_FIRST_MEASURE_SECONDS = 2.0  # early, so that a short task is measured, too
_MEASURE_SECONDS = 10.0
_WATCHDOG_GRACE_SECONDS = 2.0
_EXPIRED_GRACE_SECONDS = 2.0
_STOP_GRACE_SECONDS = 2.0
_LAST_LINES = 20
_ENDED_BEFORE_START = 143  # the exit code of a program that SIGTERM ended


async def run(directory: RankDir, lease: Lease) -> int:
    """Run the agent and return its exit code. Every error that it raises is a bug."""
    agent = RankAgent(directory, lease)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, agent.terminate, _STOP_GRACE_SECONDS)
    return await agent.run()


class RankAgent:
    """Runs the program of one rank. Its public methods handle messages of the server and signals."""

    def __init__(self, directory: RankDir, lease: Lease) -> None:
        self._directory = directory
        self._lease = lease
        self._timing = directory.timing()
        self._coroutines = Coroutines()
        self._identity = directory.identity()
        self._reaper = Reaper()
        self._control = ControlFile(directory.control)
        self._outgoing = Outgoing()
        self._spool = Spool(directory.spool)
        self._session = Session(
            directory, self._identity.token, self, self._outgoing, self._spool, lease
        )
        self._output = Output(self._spool, self._session.wake, show_bar=self._send_bar)
        self._watchdog = Watchdog(0, lambda: self._output.last_output_at, self._handle_hang)
        self._suspend_request = SuspendRequest(self._control, self._outgoing)
        self._staging = StagingDirectory()
        self._checkpoints = Checkpoints(
            self._outgoing, self._session.wake, is_staged=self._staging.has_files
        )
        self._suspend_notice = Notice(directory.notice)
        self._services = Services(
            self._reaper, self._spool, self._session.wake, self._report_services, self._coroutines
        )
        self._tunnels = Tunnels(self._identity, self._session, self._services, self._reaper)
        self._calls = Calls(
            self._control,
            self._outgoing,
            self._suspend_request,
            self._watchdog,
            self._checkpoints,
            self._session.wake,
            self._suspend_notice.saved,
        )
        self._socket = LocalSocket(directory.socket, self._calls.table())
        self._port = preparation.reserve_port()
        self._free_port = int(self._port.getsockname()[1])
        self._welcome: pb.AgentWelcome | None = None
        self._go_received = False
        self._end_grace: float | None = None  # seconds; None until the end was requested
        self._program: Program | None = None
        self._exit_reported = self._node_asks_to_leave = False
        self._environment_lock = ""
        self._idle_seconds: float | None = None  # idle time of a dev container; None if unknown
        self._owner_token = ""  # token for `hai` in a dev container
        self._finished = asyncio.Event()
        self._exit_code = 0

    async def run(self) -> int:
        """Run the rank until it ends, and return the agent's exit code. An exception group that it raises is a bug."""
        await self._socket.open()
        try:
            async with asyncio.TaskGroup() as group:
                self._coroutines.open(group)
                self._coroutines.keep_running("the connection to the server", self._keep_attached())
                self._coroutines.keep_running("the heartbeat", self._send_heartbeats())
                self._coroutines.keep_running("the end before the lease", self._end_before_expiry())
                await self._finished.wait()
                self._coroutines.close()
        finally:
            await asyncio.to_thread(self._directory.end_everything)
            self._socket.close()
        return self._exit_code

    def hello(self, address: str) -> pb.AgentHello:
        """Return the first message of each stream."""
        return pb.AgentHello(
            task_id=self._identity.task_id,
            run=self._identity.run,
            rank=self._identity.rank,
            address=address,
            free_port=self._free_port,
            started=self._program is not None,
        )

    def handle(self, response: pb.AttachResponse) -> None:
        """Handle a message of the server."""
        match response.WhichOneof("message"):
            case "welcome":
                self._handle_welcome(response.welcome)
            case "go":
                self._handle_go(response.go)
            case "suspend":
                self._coroutines.start("a suspension", self._suspend(response.suspend))
            case "suspend_at":
                self._suspend_request.set_stop_step(response.suspend_at.step)
            case "end":
                self._end(response.end.grace_seconds)
            case "exit_recorded":
                self._finish()
            case "whole_life_state":
                self._calls.confirm_whole_life_state(response.whole_life_state.value)
            case "priority":
                self._calls.answer_priority(response.priority.error)
            case "open_tunnel":
                self._coroutines.start("a tunnel", self._tunnels.carry(response.open_tunnel))
            case "control_service":
                self._services.control(response.control_service)

    def terminate(self, grace: float) -> None:
        """Handle SIGTERM: let the program save if the node allows time for that, then end it."""
        if self._program is None or not self._identity.leave_within:
            return self.stop(grace)
        request = pb.SuspendRequested(
            save_within_seconds=self._identity.leave_within,
            reason="the node asks the rank to leave",
        )
        self._node_asks_to_leave = True
        self._coroutines.start("a suspension", self._suspend(request))
        asyncio.get_running_loop().call_later(self._identity.leave_within, self.stop, grace)

    def stop(self, grace: float) -> None:
        """End the program, and report its exit if the server can be reached in time."""
        self._end(grace)
        asyncio.get_running_loop().call_later(2 * grace, self._finish)

    def _handle_welcome(self, welcome: pb.AgentWelcome) -> None:
        self._control.set_whole_life_state(welcome.whole_life_state)
        self._owner_token = welcome.owner_token or self._owner_token
        if self._owner_token:
            try:
                self._directory.write_profile(self._owner_token)
            except OSError as error:  # the disk is full; the container works without `hai`
                write_agent_log(f"the profile for `hai` cannot be written: {error}")
        if self._welcome is None:
            self._welcome = welcome
            self._watchdog.set_limit(welcome.watchdog_seconds)

    def _handle_go(self, go: pb.Go) -> None:
        if not self._go_received and self._end_grace is None:
            self._go_received = True
            self._coroutines.start("the program", self._run_program(go))

    async def _run_program(self, go: pb.Go) -> None:
        """Start the program and wait for its end. Report the start, the failure to start, and the exit."""
        try:
            self._program = await self._start(go)
        except CannotStart as error:
            if self._end_grace is not None:
                return  # `_end` has already reported the exit
            self._output.write_notice(str(error))
            failed = pb.StartFailed(reason=str(error))
            self._report("start_failed", pb.AttachRequest(start_failed=failed))
            return
        self._checkpoints.start()
        started = pb.ProgramStarted(pid=self._program.pid, environment_lock=self._environment_lock)
        self._report("started", pb.AttachRequest(started=started))
        self._watchdog.start()
        code = await self._program.wait(self._may_be_saving)
        self._watchdog.stop()
        await self._clean_up_checkpoints()
        self._report_exit(code)

    async def _clean_up_checkpoints(self) -> None:
        """Remove a checkpoint that the program was writing when it was ended. No run reads it, but it uses disk."""
        directory = self._welcome.environments.get(env.CHECKPOINT_DIR, "") if self._welcome else ""
        if await asyncio.to_thread(remove_unfinished, directory):
            self._output.write_notice(
                "the program ended while it saved a checkpoint; the unfinished file was removed, earlier ones are kept"
            )
        if self._node_asks_to_leave:
            await self._staging.write_out()

    async def _start(self, go: pb.Go) -> Program:
        """Prepare the workspace and the environment, and start the program. Raises CannotStart."""
        assert self._welcome is not None
        workspace = await preparation.prepare_workspace(
            self._welcome, self._directory, self._reaper
        )
        active = await activation.activate_environment(
            self._welcome, self._directory, self._identity, self._reaper, self._output.write_notice
        )
        self._environment_lock = active.lock_hash if active else ""
        variables = program_variables(
            os.environ, self._welcome, go, self._directory, self._identity, workspace, active
        )
        await asyncio.to_thread(self._staging.create)
        argv = preparation.with_available_shell(self._welcome.argv, variables)
        preparation.check_program(argv, workspace, variables)
        if self._end_grace is not None:
            raise CannotStart("it was ended before it started")
        self._port.close()  # the program will bind the port
        started = program.start(
            argv,
            workspace,
            variables,
            self._output,
            self._reaper,
            self._directory,
            self._coroutines,
        )
        self._tunnels.program_started(workspace, variables)
        self._services.start(self._welcome.services, self._directory.path, workspace, variables)
        return started

    async def _suspend(self, request: pb.SuspendRequested) -> None:
        if self._suspend_request.requested:
            return
        self._session.send_lines_at_once()
        await self._suspend_request.request_suspend()
        self._session.wake()
        if self._program is None or self._welcome is None:
            return
        send_suspend_signal(self._program.pid, self._welcome.suspend_signal)
        if self._welcome.container:
            await self._suspend_with_notice(request)
            return
        await report_save_progress(
            self._control, self._outgoing, self._session.wake, self._may_save
        )

    async def _suspend_with_notice(self, request: pb.SuspendRequested) -> None:
        """Suspend a dev container. Its program does not know the suspend protocol, so its users are notified."""
        self._suspend_request.acknowledge()
        self._session.wake()
        await self._suspend_notice.show(request)
        self._suspend_request.yield_run()
        self._session.wake()

    def _may_save(self) -> bool:
        return not (self._suspend_request.yielded or self._exit_reported)

    def _may_be_saving(self) -> bool:
        has_signal = self._welcome is not None and bool(self._welcome.suspend_signal)
        return has_signal and self._suspend_request.requested and self._end_grace is None

    def _end(self, grace: float) -> None:
        self._session.send_lines_at_once()
        first = self._end_grace is None
        self._end_grace = grace
        self._services.terminate()
        if self._program is not None:
            self._program.end(grace)
        elif first:
            self._coroutines.start("the end before the start", self._end_before_start())

    async def _end_before_start(self) -> None:
        """End processes that may run before the program starts: a git clone, or the unpacking of an environment."""
        await program.end_everything(self._directory)
        self._report_exit(_ENDED_BEFORE_START)

    def _report_exit(self, code: int) -> None:
        """Report the exit of the program. All processes of the rank must have ended.

        The server may start the next run as soon as it has the report.
        """
        self._exit_reported = True
        self._lease.release()
        self._tunnels.program_ended()
        if self._exit_code == EXIT_EXPIRED:
            # Report nothing, because the program has not failed, and the server must start it again. The agent ends
            # shortly afterwards (see `stop`), so that it can still send the last output of the program.
            return
        self._checkpoints.flush()
        exited = pb.ProgramExited(
            exit_code=code,
            last_lines=self._output.last_lines(_LAST_LINES) if code else "",
            yielded=self._suspend_request.yielded,
            staged=self._staging.has_files(),
        )
        self._report("exited", pb.AttachRequest(exited=exited), after_log=True)

    def _send_bar(self, bar: str) -> None:
        self._outgoing.drop("bar")
        if bar:
            self._outgoing.put("bar", pb.AttachRequest(bar=pb.BarDrawn(text=bar)))
            self._session.wake()

    def _handle_hang(self, silent_seconds: float) -> None:
        """End a program that has printed nothing for too long."""
        assert self._program is not None
        self._output.write_notice(
            f"nothing printed for {silent_seconds:.0f} s: the program counts as hung"
        )
        fired = pb.WatchdogFired(silent_seconds=silent_seconds)
        self._report("watchdog", pb.AttachRequest(watchdog_fired=fired))
        self._program.end(_WATCHDOG_GRACE_SECONDS)

    def _report(self, kind: str, message: pb.AttachRequest, *, after_log: bool = False) -> None:
        self._outgoing.keep(kind, message, after_log=after_log)
        self._session.wake()

    async def _keep_attached(self) -> None:
        try:
            await self._session.run()
        except RankRejected as error:
            write_agent_log(f"leaving: {error}")
            self._finish()
            await asyncio.Event().wait()  # until `run` cancels this coroutine

    async def _end_before_expiry(self) -> None:
        """End the program shortly before the lease expires.

        The program gets a grace period. The supervisor would kill it without one when the lease expires.
        """
        await wait_out(lambda: self._lease.remaining - self._timing.end_before)
        why = f"no server has renewed the lease of this rank for {self._timing.lease:.0f} s"
        write_agent_log(f"ending: {why}")
        self._directory.report_failure(f"{why}: its program was ended")
        self._exit_code = EXIT_EXPIRED
        self.stop(min(_EXPIRED_GRACE_SECONDS, self._timing.end_before / 3))
        await asyncio.Event().wait()

    async def _send_heartbeats(self) -> None:
        """Send heartbeats until cancelled. Only some contain a measurement, because measuring takes CPU time."""
        clock, usage = asyncio.get_running_loop().time, Usage(self._identity.gpu_indices)
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
        self._idle_seconds = (
            0.0 if self._tunnels.shell_count else await self._services.read_idle_seconds()
        )
        self._report_services()

    def _report_services(self) -> None:
        report = pb.ServicesReported(services=self._services.statuses())
        if self._idle_seconds is not None:
            report.idle_seconds = self._idle_seconds
        self._report("services", pb.AttachRequest(services=report))

    def _finish(self) -> None:
        self._finished.set()
