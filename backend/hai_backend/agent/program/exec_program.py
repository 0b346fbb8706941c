"""Becomes the program: run as `python -I -S program/exec_program.py AGENT_PID ARGV…`, about 10 ms, and nothing of it
stays.

A step of its own, because what must be set before the program runs cannot safely be set between fork and exec of an
agent that has threads. Imports next to nothing. Like a shell: 127 when the program is not found, 126 when it cannot be
run.
"""

import ctypes
import fcntl
import os
import resource
import sys
import termios

_PR_SET_PDEATHSIG, _SIGKILL, _SIGPIPE, _SIGXFSZ, _SIG_DFL = 1, 9, 13, 25, 0


def main(agent: int, argv: list[str]) -> int:
    """Never returns when all is well."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)  # an agent that dies takes its program with it
    if os.getppid() != agent:
        return 137  # it died before that
    for number in (_SIGPIPE, _SIGXFSZ):  # python ignores them, and programs would inherit that
        libc.signal(number, ctypes.c_void_p(_SIG_DFL))
    if os.isatty(0):  # a shell of a person: Ctrl-C and window sizes reach it by its terminal
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
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
