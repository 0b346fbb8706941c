"""What the agent says of itself, to agent.log: never worth a program, so a full disk loses the line only."""

from __future__ import annotations

import sys
import time
from contextlib import suppress

from hai.redaction import redact


def note(message: str) -> None:
    """One line, with the time and without credentials."""
    with suppress(OSError):
        print(time.strftime("%FT%TZ", time.gmtime()), redact(message), file=sys.stderr, flush=True)
