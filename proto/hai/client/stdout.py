"""What our commands do when nobody reads what they print any more."""

from __future__ import annotations

import os
import sys


def nobody_reads() -> int:
    """`hai list | head`: what is still in the buffer goes nowhere; 128 + SIGPIPE, as of any tool."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141
