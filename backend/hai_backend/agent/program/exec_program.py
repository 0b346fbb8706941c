"""Executes the program in this process, started as `python -I -S program/exec_program.py AGENT_PID ARGV…`.

A separate script (about 10 ms), because an agent that has threads cannot safely set process attributes between fork and
exec. It imports little. Its exit codes are those of a shell: 127 if the program does not exist, 126 if it cannot be
executed.
"""

import ctypes
import fcntl
import os
import resource
import sys
import termios

_PR_SET_PDEATHSIG, _SIGKILL, _SIGPIPE, _SIGXFSZ, _SIG_DFL = 1, 9, 13, 25, 0


def main(agent: int, argv: list[str]) -> int:
    """Execute the program. Return an exit code only if that fails."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)  # the program dies with its agent
    if os.getppid() != agent:
        return 137  # the agent died before prctl
    for number in (_SIGPIPE, _SIGXFSZ):  # Python ignores them, and the program would inherit that
        libc.signal(number, ctypes.c_void_p(_SIG_DFL))
    if os.isatty(0):  # a shell: Ctrl-C and window sizes reach it through its controlling terminal
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    try:
        os.execvp(argv[0], argv)
    except FileNotFoundError as error:
        reason, code = error.strerror, 127
    except OSError as error:
        reason, code = error.strerror, 126
    print(f"hai-agent: cannot run {argv[0]}: {reason}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
