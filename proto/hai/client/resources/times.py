"""Times as the contract writes them."""

from __future__ import annotations

from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp


def timestamp(moment: datetime | None) -> Timestamp | None:
    """The same moment as a message; a moment without a zone is local time."""
    if moment is None:
        return None
    result = Timestamp()
    result.FromDatetime(moment.astimezone())
    return result
