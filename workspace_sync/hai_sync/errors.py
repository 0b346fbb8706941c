"""What this package raises beside the client's errors; all are HaiErrors, so that commands tell them alike.

SyncRefused    the plan is not carried out: conflicts, many removals, a root that is not itself
BadPeer        the server sent what must not be, and nothing of it was taken
"""

from __future__ import annotations

from hai.client.errors import HaiError


class SyncRefused(HaiError):
    """The plan is not carried out."""

    default_reason = "REFUSED"


class BadPeer(HaiError):
    """The server sent what must not be, and nothing of it was taken."""

    default_reason = "BAD_PEER"
