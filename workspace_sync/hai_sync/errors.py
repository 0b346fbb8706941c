"""Exceptions of this package.

FileChanged          a local file changed after the plan was made; the sync starts again
RemoteFileChanged    a program on the cluster changed a file after it was scanned; the sync starts again
ProtocolViolation    the server sent invalid data, and none of it was used
"""

from __future__ import annotations

from hai.client.errors import HaiError


class RemoteFileChanged(HaiError):
    """A program on the cluster changed the file `path` in place after it was scanned."""

    default_reason = "CONTENT_LOST"

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class ProtocolViolation(HaiError):
    """The server sent invalid data, and none of it was used."""

    default_reason = "BAD_PEER"


NOT_FOUND = (FileNotFoundError, NotADirectoryError)
"""The exceptions for a file that was removed after it was listed, alone or with its directory."""

CHANGES_WHILE_READ = "it changes while it is read; sync again later"
"""The problem that is reported for a file that a program keeps writing."""


class FileChanged(Exception):
    """The local file `path` changed after the plan was made, or was `removed`."""

    def __init__(
        self, path: str, reason: str = "it changes while it is read", *, removed: bool = False
    ) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
        self.removed = removed
