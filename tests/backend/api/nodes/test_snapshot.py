"""GetSnapshot streams the snapshot of the scheduler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hai.v1 import node_service_pb2 as pb
from hai_backend.api.request import limits
from hai_backend.domain.scheduling.snapshot import Snapshot
from hai_backend.domain.scheduling.snapshot_json import anonymize, parse
from hai_backend.scheduler.testing import nodes, queued, snap


async def dumped(platform: Any, **how: Any) -> list[bytes]:
    olga = await platform.caller("olga")
    return [part.data async for part in olga.nodes.GetSnapshot(pb.GetSnapshotRequest(**how))]


def large() -> Snapshot:
    named = [replace(queued(i), user="zoë" * 20) for i in range(12_000)]
    return snap(nodes(9), *named)


async def test_large_snapshot_is_sent_in_parts(platform: Any) -> None:
    platform.scheduling.current_snapshot = large()
    parts = await dumped(platform)
    assert len(parts) > 2
    assert max(map(len, parts)) <= limits.BUNDLE_BYTES
    assert parse(b"".join(parts).decode()) == platform.scheduling.current_snapshot


async def test_snapshot_can_be_anonymous(platform: Any) -> None:
    platform.scheduling.current_snapshot = given = snap(nodes(2), queued(1, user="ada"))
    text = b"".join(await dumped(platform, anonymous=True)).decode()
    assert parse(text) == anonymize(given) != given
