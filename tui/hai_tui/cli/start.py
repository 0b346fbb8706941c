"""Where the process of `hai` begins. Loading its modules takes a tenth of a second, in which Ctrl-C just ends it.

Python would show where it was interrupted, which tells a person nothing.
"""

from __future__ import annotations

import signal


def main() -> int:
    """`hai_tui.cli.main.main`, safe from Ctrl-C before and after. A parent that ignores it stays obeyed."""
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
