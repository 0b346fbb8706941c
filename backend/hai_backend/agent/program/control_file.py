"""The agent's side of the control file: raises the suspend flag, reads which steps the program has entered."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from hai.task import control_file as layout

_WORD_BYTES = 8


class Control:
    """A fresh file, mapped; the program maps it too."""

    def __init__(self, path: Path) -> None:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(handle, layout.SIZE)
            self._memory = memoryview(mmap.mmap(handle, layout.SIZE))
        finally:
            os.close(handle)
        self._words = self._memory.cast("q")  # stores whole words, as the layout asks
        for slot in range(layout.STEP_SLOTS):
            self._words[layout.STEPS // _WORD_BYTES + slot] = -1

    @property
    def flag(self) -> int:
        """NOTHING, ASKED or AGREED."""
        return self._memory[layout.FLAG]

    def set_whole_life_state(self, value: int) -> None:
        """Show the program a new value."""
        self._words[layout.WHOLE_LIFE_STATE // _WORD_BYTES] = value

    @property
    def whole_life_state(self) -> int:
        return self._words[layout.WHOLE_LIFE_STATE // _WORD_BYTES]

    def request_suspend(self) -> None:
        """Raise the suspend flag."""
        self._memory[layout.FLAG] = layout.REQUESTED

    def agree(self, step: int) -> None:
        """Say before which step to stop; the step must stand there before the flag does."""
        self._words[layout.STOP_STEP // _WORD_BYTES] = step
        self._memory[layout.FLAG] = layout.AGREED

    def largest_step(self) -> int:
        """The last step that any process of this rank has entered; -1: none reports steps."""
        first = layout.STEPS // _WORD_BYTES
        return max(self._words[first : first + layout.STEP_SLOTS])
