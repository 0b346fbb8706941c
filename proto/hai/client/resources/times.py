"""Times as the contract writes them."""

from __future__ import annotations

from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp


def timestamp(time: datetime | None) -> Timestamp | None:
    """The same moment as a message; a moment without a zone is local time."""
    if time is None:
        return None
    result = Timestamp()
    result.FromDatetime(time.astimezone())
    return result
