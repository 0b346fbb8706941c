"""A wall clock that jumps, for processes that are started with `variables`. libfaketime reads its offset from a file.

Only the wall clock (CLOCK_REALTIME) is changed. Monotonic clocks cannot be set on real machines either.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hai.host.atomic_write import replace_file

TRUE_TIME = ("env", "-u", "LD_PRELOAD")
"""Before the command of a program that shall have the true time: under libfaketime Python's sleep fails at a jump."""

_LIBRARY = "libfaketimeMT.so.1"


class Clock:
    """The wall clock of some processes, and of the processes that they start."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "clock"
        self.jump(0)

    def jump(self, seconds: float) -> None:
        """Set the offset to the true time from now on, in seconds."""
        replace_file(self._file, f"{seconds:+f}\n".encode())

    def variables(self) -> dict[str, str]:
        """Return the environment variables of a process with this clock. Skips the test without libfaketime."""
        found = sorted(Path("/usr/lib").glob(f"*/faketime/{_LIBRARY}"))
        if not found:
            pytest.skip("no libfaketime here: apt-get install faketime")
        return {
            "LD_PRELOAD": str(found[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
        }
