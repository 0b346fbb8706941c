"""Executes the program in this process. Usage: `python -I -S program/exec_program.py AGENT_PID ARGV…`.

This is a separate script because the agent has threads, so it cannot safely set process attributes between fork and
exec. The script imports little, so that it takes only about 10 ms. Its exit codes are those of a shell: 127 if the
program does not exist, 126 if it cannot be executed.
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
    libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)  # the program is killed when its agent ends
    if os.getppid() != agent:
        return 137  # the agent ended before the call of prctl
    for number in (_SIGPIPE, _SIGXFSZ):  # ignored by Python, which the program would inherit
        libc.signal(number, ctypes.c_void_p(_SIG_DFL))
    if os.isatty(0):  # a shell gets Ctrl-C and window sizes from its controlling terminal
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
