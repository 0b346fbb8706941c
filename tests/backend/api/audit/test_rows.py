"""The description of a call in an audit row."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from hai.v1.node_service_pb2 import CordonNodeRequest
from hai.v1.task_service_pb2 import UpdateTaskPriorityRequest
from hai.v1.user_pb2 import Quota, Share, User
from hai.v1.user_service_pb2 import (
    CreateUserRequest,
    SetQuotaRequest,
    SetShareRequest,
)
from hai_backend.api.audit.rows import describe_request

ROWS = [
    pytest.param(UpdateTaskPriorityRequest(id=12), "id=12 priority=0", id="LOW is a level"),
    pytest.param(
        SetQuotaRequest(quota=Quota(subject="ada", group="g")),
        "subject='ada' group='g' priority=0 nodes=0",
        id="no nodes at LOW",
    ),
    pytest.param(
        SetShareRequest(share=Share(user_group="v", group="g", weight=2)),
        "user_group='v' group='g' guaranteed=0 weight=2",
        id="nothing is guaranteed any more",
    ),
    pytest.param(
        CreateUserRequest(user=User(name="ada", role=2, groups=["v"])),
        "name='ada' role=OPERATOR groups=['v']",
        id="words of the contract",
    ),
    pytest.param(CordonNodeRequest(name="n1"), "name='n1'", id="what is not said"),
]


@pytest.mark.parametrize(("request_", "said"), ROWS)
def test_request_is_described_for_the_audit(request_: Message, said: str) -> None:
    assert describe_request(request_) == said
