"""Messages that are assembled from encoded parts equal those that protobuf encodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai.v1 import task_pb2, watch_service_pb2
from hai.v1.task_service_pb2 import WatchTasksResponse
from hai_backend.api.watch.wire import integer_field, join_fields, message_field

TASKS = st.lists(st.builds(task_pb2.Task, id=st.integers(0, 2**62), name=st.text(max_size=200)))


@given(TASKS, st.integers(0, 2**63 - 1))
def test_assembled_messages_decode_to_the_same(tasks: list[task_pb2.Task], version: int) -> None:
    fields = [message_field(1, task.SerializeToString()) for task in tasks]
    encoded = b"".join(fields) + integer_field(2, version)
    response = WatchTasksResponse(tasks=tasks, version=version)
    assert WatchTasksResponse.FromString(encoded) == response
    merged = watch_service_pb2.WatchResponse.FromString(message_field(1, encoded))
    assert merged == watch_service_pb2.WatchResponse(tasks=response)


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        pytest.param([], [b""], id="nothing"),
        pytest.param([b"ab", b"c"], [b"abc"], id="all fit"),
        pytest.param([b"ab", b"cd"], [b"ab", b"cd"], id="one does not fit"),
        pytest.param([b"a", b"bcdef", b"g"], [b"a", b"bcdef", b"g"], id="one is larger"),
    ],
)
def test_fields_are_joined_up_to_a_size(fields: list[bytes], parts: list[bytes]) -> None:
    assert list(join_fields(fields, 3)) == parts
