"""What this package raises beside the client's errors. All but Restless are HaiErrors: commands tell them alike.

Restless       a file is not what it was when the decision was made; the sync begins anew
Lost           a program on the cluster changed a file since it was looked at; the sync begins anew
BadPeer        the server sent what must not be, and nothing of it was taken
"""

from __future__ import annotations

from hai.client.errors import HaiError


class Lost(HaiError):
    """A program on the cluster changed a file in place since it was looked at; `path` tells which."""

    default_reason = "CONTENT_LOST"

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class BadPeer(HaiError):
    """The server sent what must not be, and nothing of it was taken."""

    default_reason = "BAD_PEER"


GONE = (FileNotFoundError, NotADirectoryError)
"""What reading raises for a file that was removed after it was listed, alone or with its directory."""

CHANGING = "it changes while it is read; sync again later"
"""Why a file is left alone that somebody writes all the time."""


class Restless(Exception):
    """A file is not what it was when the decision was made; `path` tells which, `gone` that it was removed."""

    def __init__(
        self, path: str, why: str = "it changes while it is read", *, gone: bool = False
    ) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why
        self.gone = gone
