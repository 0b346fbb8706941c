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


class Restless(Exception):
    """A file is not what it was when the decision was made; `path` tells which."""

    def __init__(self, path: str, why: str = "it changes while it is read") -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why
