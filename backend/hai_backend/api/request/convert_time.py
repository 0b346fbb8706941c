"""Converts times: seconds since the epoch in the server, Timestamp in messages."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

END_OF_TIME = 253_402_300_799  # the largest value of a Timestamp


def to_timestamp(seconds: float | None) -> Timestamp | None:
    """Return a Timestamp with a precision of microseconds. Return None for None."""
    if seconds is None:
        return None
    micros = round(seconds * 1e6)
    return Timestamp(seconds=micros // 1_000_000, nanos=micros % 1_000_000 * 1000)


def from_timestamp(timestamp: Timestamp) -> float:
    return timestamp.seconds + timestamp.nanos / 1e9
