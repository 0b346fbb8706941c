"""Tests that requests serialized by hand equal those of protobuf."""

from __future__ import annotations

import pytest

from hai.v1.workspace_service_pb2 import PushContents, PushTreeRequest
from hai_sync.remote import messages


@pytest.mark.parametrize("sizes", [[], [0], [1, 126], [127, 0], [128], [16_000, 400], [1 << 20, 5]])
@pytest.mark.parametrize("compressed", [False, True])
def test_contents_are_serialized_as_by_protobuf(sizes: list[int], compressed: bool) -> None:
    digests = [bytes([number]) * 32 for number in range(len(sizes))]
    data = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    made = messages.contents(digests, sizes, data, compressed)
    reported = PushContents(
        digests=digests, sizes=sizes, data=b"".join(data), compressed=compressed
    )
    assert PushTreeRequest.FromString(made) == PushTreeRequest(contents=reported)
