"""Describes exit codes. As in shells and Slurm, 128 + n means that signal n killed the program."""

from __future__ import annotations

_SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}
_LAST_SIGNAL = 64  # higher codes are set by the program itself: exit(-1) gives 255
_ENDING = (9, 15)  # the signals that the platform sends
_HINTS = {
    9: "the kernel's out-of-memory killer sends it too",
    11: "invalid memory access",
    6: "the program aborted itself",
    7: "often a full /dev/shm",
}


def describe_exit_code(exit_code: int, *, by_platform: bool = False) -> str:
    """Say what an exit code means, such as "killed by SIGKILL (…)" for 137.

    `by_platform` says whether the platform ended the program.
    """
    if exit_code == 0:
        return "succeeded"
    if exit_code == 126:
        return "exit code 126: the program is not executable"
    if exit_code == 127:
        return "exit code 127: the program was not found"
    if 128 < exit_code <= 128 + _LAST_SIGNAL:
        return _killed_by(exit_code - 128, by_platform)
    return f"exit code {exit_code}"


def _killed_by(number: int, by_platform: bool) -> str:
    name = _SIGNALS.get(number, f"signal {number}")
    if by_platform and number in _ENDING:
        return f"ended by {name}"
    hint = _HINTS.get(number)
    return f"killed by {name}" + (f" ({hint})" if hint else "")
