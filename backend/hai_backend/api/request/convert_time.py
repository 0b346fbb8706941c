"""Moments: seconds since the epoch here, Timestamp on the wire."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

END_OF_TIME = 253_402_300_799  # what a Timestamp can hold


def timestamp(moment: float | None) -> Timestamp | None:
    """To microseconds; None stays unset."""
    if moment is None:
        return None
    micros = round(moment * 1e6)
    return Timestamp(seconds=micros // 1_000_000, nanos=micros % 1_000_000 * 1000)


def moment(stamp: Timestamp) -> float:
    """Back to seconds."""
    return stamp.seconds + stamp.nanos / 1e9
