"""Files that chunks come from: older versions, and what is being put together. A few of them are open at a time."""

from __future__ import annotations

import os
from contextlib import suppress

from hai_backend.domain.errors import Conflict
from hai_backend.workspaces.files import Files

OPEN = 16


def part_of(file: bytes) -> str:
    """The name of an incomplete file in `incoming`."""
    return f"{file.hex()}.part"


class Sources:
    """Of one push. One thread at a time."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._here: dict[bytes, bool] = {}
        self._open: dict[bytes, int] = {}  # the one that was asked for last is the last

    def has(self, file: bytes) -> bool:
        """Whether there is a file of this digest, or a part of one."""
        if file not in self._here:
            self._here[file] = self._opened(file) is not None
        return self._here[file]

    def open(self, file: bytes) -> int:
        """It stays open until OPEN others were asked for. Raises Conflict when it has gone since."""
        found = self._opened(file)
        if found is None:
            raise Conflict(
                f"{file.hex()} changed while it was read; push again", reason="CONTENTS_MISSING"
            )
        return found

    def _opened(self, file: bytes) -> int | None:
        found = self._open.pop(file, None)
        if found is None:
            found = self._found(file)
        if found is not None:
            self._open[file] = found
            if len(self._open) > OPEN:
                os.close(self._open.pop(next(iter(self._open))))
        return found

    def _found(self, file: bytes) -> int | None:
        with suppress(FileNotFoundError):
            return self._files.incoming.open(part_of(file))
        return self._files.find(file)

    def close(self) -> None:
        """Done with all of them."""
        for found in self._open.values():
            os.close(found)
        self._open.clear()
