"""The agent's side of the control file: sets the suspend flag, and reads which steps the program has entered."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from hai.task import control_file as layout

_WORD_BYTES = 8


class ControlFile:
    """A new control file, which the agent and the program both map into memory."""

    def __init__(self, path: Path) -> None:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(handle, layout.SIZE)
            self._memory = memoryview(mmap.mmap(handle, layout.SIZE))
        finally:
            os.close(handle)
        self._words = self._memory.cast("q")  # writes whole words, as the layout requires
        for slot in range(layout.STEP_SLOTS):
            self._words[layout.STEPS // _WORD_BYTES + slot] = -1

    @property
    def flag(self) -> int:
        """The suspend flag: NOTHING, REQUESTED or AGREED."""
        return self._memory[layout.FLAG]

    def set_whole_life_state(self, value: int) -> None:
        """Write a new whole-life state for the program to read."""
        self._words[layout.WHOLE_LIFE_STATE // _WORD_BYTES] = value

    @property
    def whole_life_state(self) -> int:
        return self._words[layout.WHOLE_LIFE_STATE // _WORD_BYTES]

    def request_suspend(self) -> None:
        """Set the suspend flag to REQUESTED."""
        self._memory[layout.FLAG] = layout.REQUESTED

    def set_stop_step(self, step: int) -> None:
        """Set the step before which the program stops. Then set the flag, after which the program reads the step."""
        self._words[layout.STOP_STEP // _WORD_BYTES] = step
        self._memory[layout.FLAG] = layout.AGREED

    def read_last_step(self) -> int:
        """Return the last step that any process of this rank has entered; -1 if no process reports steps."""
        first = layout.STEPS // _WORD_BYTES
        return max(self._words[first : first + layout.STEP_SLOTS])

    def read_save_progress(self) -> tuple[int, int]:
        """Return the bytes that the processes of this rank have saved, and the bytes of their states; 0, 0 for none."""
        first = layout.SAVES // _WORD_BYTES
        table = self._words[first : first + 2 * layout.STEP_SLOTS].tolist()
        return sum(table[::2]), sum(table[1::2])
