"""The outermost process of a rank, which outlives the agent and kills all remaining processes of the rank.

The supervisor only waits until the agent ends or the lease expires. An agent that is frozen or hangs in a system call
does not renew the lease, so the supervisor kills it and its program. In a pod, the supervisor is process 1, so the
container ends with it.

The supervisor is a child subreaper. So a process that has left its session, and whose parent has ended, is still a
descendant of the supervisor. The supervisor forks the agent before large imports, so that it needs little memory.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from math import isfinite

from hai_backend.agent.lease import Lease
from hai_backend.agent.rank_dir import RankDir, write_agent_log
from hai_backend.launch import processes

EXIT_BUG, EXIT_EXPIRED = 1, 3

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CLOCK_BOOTTIME, _TIMER_ABSTIME = 7, 1
_FORWARDED = (signal.SIGTERM, signal.SIGINT)
_SIGNALS = (*_FORWARDED, signal.SIGCHLD)

_libc = ctypes.CDLL(None, use_errno=True)


def supervise(directory: RankDir, lease: Lease, run_agent: Callable[[], int]) -> int:
    """Run the agent in a child process.

    Return its exit code when no process of the rank is left. In the child, this function never returns.
    """
    processes.write_pid_file(directory.agent_pid, os.getpid())
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Signals are blocked until the agent exists, because they could not be forwarded to it.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    supervisor, agent = os.getpid(), os.fork()
    if agent == 0:
        _become_agent(supervisor, run_agent)
    return _Supervisor(directory, lease, agent).run()


def _become_agent(supervisor: int, run_agent: Callable[[], int]) -> None:
    """Run the agent in the child process and exit. This function never returns."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Orphans of the program become children of the agent, so that a process cannot leave the rank by forking twice.
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    code = EXIT_BUG
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        # otherwise the supervisor ended before PR_SET_PDEATHSIG was set
        if os.getppid() == supervisor:
            code = run_agent()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # skip the shutdown of gRPC, which would occupy the node for longer


class _Supervisor:
    """Supervises one agent, which is its child process."""

    def __init__(self, directory: RankDir, lease: Lease, agent: int) -> None:
        self._directory = directory
        self._lease = lease
        self._agent = agent
        self._timer = _Timer()
        self._poll = select.poll()
        self._signals, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in _SIGNALS:
            signal.signal(number, self._forward)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        self._poll.register(self._signals, select.POLLIN)
        self._poll.register(self._timer.descriptor, select.POLLIN)

    def run(self) -> int:
        """Wait until the agent has ended or the lease has expired; then kill all processes of the rank."""
        while True:
            if self._lease.expired:
                return self._expire()
            if (status := self._agent_status()) is not None:
                return self._clean_up_after(os.waitstatus_to_exitcode(status))
            self._timer.set(self._lease.deadline)  # the deadline may move while the poll waits
            self._poll.poll()
            with suppress(BlockingIOError):
                os.read(self._signals, 4096)

    def _forward(self, number: int, _: object) -> None:
        if number in _FORWARDED:
            with suppress(ProcessLookupError):
                os.kill(self._agent, number)

    def _agent_status(self) -> int | None:
        """Return the wait status of the agent; None while it runs. Also reap other children, which are orphans."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._agent:
                    return ended[1]
        return None

    def _expire(self) -> int:
        """Kill all processes, then report that the lease has expired. Return the exit code."""
        os.kill(self._agent, signal.SIGKILL)  # the kernel kills the program when its agent ends
        late_seconds = -self._lease.remaining
        remaining = self._end_everything()
        self._report(
            f"no server renewed the lease of this rank in time: ended {late_seconds:.1f} s late",
            remaining,
        )
        return EXIT_EXPIRED

    def _clean_up_after(self, code: int) -> int:
        remaining = self._end_everything()
        if code != 0 and not self._directory.failure.exists():
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            self._report(
                f"the agent ended unexpectedly, by {how}; its program was ended", remaining
            )
        return code if code >= 0 else 128 - code

    def _end_everything(self) -> list[int]:
        return [process.pid for process in self._directory.end_everything()]

    def _report(self, why: str, remaining: list[int]) -> None:
        if remaining:
            why = f"{why}. Processes {', '.join(map(str, remaining))} cannot be ended"
        self._directory.report_failure(why)
        write_agent_log(why)


class _Timer:
    """A descriptor that becomes readable at a time by the clock of leases, even if the machine has slept meanwhile."""

    def __init__(self) -> None:
        self.descriptor = _libc.timerfd_create(_CLOCK_BOOTTIME, os.O_CLOEXEC | os.O_NONBLOCK)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "the kernel offers no timer for the lease")

    def set(self, at: float) -> None:
        """Make the descriptor readable at `at`; inf means never."""
        seconds, fraction = divmod(at, 1.0) if isfinite(at) else (0.0, 0.0)
        value = (ctypes.c_long * 4)(0, 0, int(seconds), int(fraction * 1e9))
        if _libc.timerfd_settime(self.descriptor, _TIMER_ABSTIME, value, None) != 0:
            raise OSError(ctypes.get_errno(), "the timer of the lease cannot be set")
