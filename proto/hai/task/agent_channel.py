"""The channel to a real agent: a memory-mapped file for the suspend flag, and a unix socket for calls.

`suspend_agreed` stores the step and then loads the flag. The processor may execute the load before the store becomes
visible. So the agent waits 2 ms after it has set the flag before it reads the steps. A step is stored as one aligned
8-byte word: a memoryview of format "q" does this, but struct.pack_into would store single bytes.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import socket  # here, and not where it is used: a suspend leaves no time to load it
import sys
import time
from collections.abc import Mapping

from hai.task import control_file, env
from hai.task.channel import AgentError, log_line

TYPE_CHECKING = False  # type checkers assume True
if TYPE_CHECKING:
    from typing import NoReturn

    from hai.task.channel import Answer, Value

_ACKNOWLEDGE_SECONDS = 2.0  # saving is more urgent than the acknowledgement
_POLL_SECONDS = 0.0005  # agents agree within milliseconds; see suspend_agreed
_RETRY_SECONDS = 0.05
_MAX_ANSWER = 1 << 16
_WORD = 8


class AgentChannel:
    """Reads the control file and calls the agent. Each call has its own connection, so forks and threads are safe."""

    def __init__(
        self, control_file: str, socket_path: str, local_rank: int, container: bool = False
    ) -> None:
        self._bytes = _map(control_file)
        self._words = self._bytes.cast("q")
        self._socket_path = socket_path
        self._local_rank = local_rank
        self._container = container
        self._acknowledged = False

    @classmethod
    def from_environ(cls, variables: Mapping[str, str]) -> AgentChannel:
        return cls(
            variables[env.CONTROL_FILE],
            variables[env.AGENT_SOCKET],
            int(variables.get(env.LOCAL_RANK) or 0),
            variables.get(env.TASK_TYPE) == "jupyter",
        )

    def suspend_requested(self) -> bool:
        if self._bytes[control_file.FLAG] == control_file.NONE:
            return False
        self._acknowledge()
        return True

    def suspend_agreed(self, step: int) -> bool:
        self._words[self._slot()] = step  # must be stored before the load below
        if self._bytes[control_file.FLAG] == control_file.NONE:
            return False
        self._acknowledge()
        # The agents agree with the server soon after the request. The flag is polled, because it cannot wake a process.
        while (flag := self._bytes[control_file.FLAG]) == control_file.REQUESTED:
            time.sleep(_POLL_SECONDS)
        return flag == control_file.AGREED and step >= self._words[control_file.STOP_STEP // _WORD]

    def go_suspend(self, timeout: float, raise_exception: bool) -> bool:
        if self._container:
            return _refuse_in_container("go_suspend")
        sys.stdout.flush()
        try:
            self.request("go_suspend", timeout)
        except AgentError as error:
            if raise_exception:
                raise
            log_line(f"go_suspend: {error}; waiting for termination all the same")
        _wait_for_termination()

    def wait_suspended(self) -> bool:
        if self._container:
            return _refuse_in_container("wait_suspended")
        sys.stdout.flush()
        _wait_for_termination()

    def set_save_progress(self, saved: int, total: int) -> None:
        slot = control_file.SAVES // _WORD + 2 * self._local_rank
        # Agents of earlier releases have a shorter file.
        if 0 <= self._local_rank < control_file.STEP_SLOTS and slot < len(self._words):
            self._words[slot], self._words[slot + 1] = saved, total

    def whole_life_state(self) -> int | None:
        return self._words[control_file.WHOLE_LIFE_STATE // _WORD]

    def request(self, call: str, timeout: float, **values: Value) -> Answer:
        deadline = time.monotonic() + timeout
        wait = _RETRY_SECONDS
        while True:
            try:
                return self._exchange({"call": call, **values}, deadline)
            except (FileNotFoundError, ConnectionError) as error:  # no agent listens
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise AgentError(f"{call}: no agent at {self._socket_path}: {error}") from error
                time.sleep(min(wait, remaining))
                wait = min(2 * wait, 1.0)

    def _exchange(self, request: Mapping[str, Value], deadline: float) -> Answer:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                connection.connect(self._socket_path)
                connection.sendall(json.dumps(request).encode() + b"\n")
                return _answer(connection)
            except TimeoutError:
                raise AgentError(f"{request['call']}: the agent did not answer in time") from None

    def _acknowledge(self) -> None:
        if self._acknowledged:
            return
        self._acknowledged = True
        try:
            self.request("suspend_received", _ACKNOWLEDGE_SECONDS)
        except AgentError as error:
            log_line(f"the suspend request could not be acknowledged: {error}")

    def _slot(self) -> int:
        """Return the index of the word for the step of this process. Raises ValueError if LOCAL_RANK is too large."""
        if not 0 <= self._local_rank < control_file.STEP_SLOTS:
            raise ValueError(
                f"{env.LOCAL_RANK} is {self._local_rank}; suspend_agreed serves 0 to {control_file.STEP_SLOTS - 1}: "
                "call receive_suspend_command() and agree among your processes instead"
            )
        return control_file.STEPS // _WORD + self._local_rank


def _map(path: str) -> memoryview:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise AgentError(
            f"{env.CONTROL_FILE} names {path}, which cannot be opened ({error.strerror}); "
            f"unset it to run outside the cluster"
        ) from error
    try:
        return memoryview(mmap.mmap(handle, 0))
    finally:
        os.close(handle)


def _answer(connection: socket.socket) -> Answer:
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < _MAX_ANSWER:
        part = connection.recv(4096)
        if not part:
            raise ConnectionResetError("the agent hung up")
        line += part
    answer = json.loads(line)
    return answer if isinstance(answer, dict) else {"ok": False, "error": "no JSON object"}


def _refuse_in_container(call: str) -> bool:
    log_line(
        f"{call} does nothing in a dev container, which terminates by itself once its notebooks are saved"
    )
    return False


def _wait_for_termination() -> NoReturn:
    # A signal handler of the program may return. Only the agent terminates this process.
    while True:
        signal.pause()
