"""The entry point of `hai`. While its modules load, which takes a tenth of a second, Ctrl-C ends the process at once.

Otherwise Python would print a traceback, which does not help the user.
"""

from __future__ import annotations

import signal


def main() -> int:
    """Run `hai_tui.cli.main.main`. If the parent process ignores SIGINT, this process ignores it, too."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from hai_tui.cli.main import main as run

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = run()
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code
