"""What the scheduler knows as a stream of text: computed in a thread, for a large one takes seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from hai_backend.api.protocols import Scheduling
from hai_backend.api.request import limits
from hai_backend.domain.scheduling import snapshot_json
from hai_backend.domain.scheduling.snapshot import Snapshot


async def dump(scheduling: Scheduling, *, anonymous: bool) -> AsyncIterator[bytes]:
    """The text in parts that fit into messages."""
    snapshot = await scheduling.snapshot()
    for part in await asyncio.to_thread(_parts, snapshot, anonymous):
        yield part


def _parts(snapshot: Snapshot, anonymous: bool) -> list[bytes]:
    told = snapshot_json.anonymize(snapshot) if anonymous else snapshot
    return list(_bundled(snapshot_json.format_lines(told)))


def _bundled(lines: Iterator[str]) -> Iterator[bytes]:
    part = bytearray()
    for line in lines:
        part += line.encode()
        while len(part) >= limits.BUNDLE_BYTES:
            yield bytes(part[: limits.BUNDLE_BYTES])
            del part[: limits.BUNDLE_BYTES]
    yield bytes(part)
