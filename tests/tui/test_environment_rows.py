"""The row of an environment has the facts that a user needs to choose one."""

from __future__ import annotations

from hai.v1 import environment_pb2 as pb
from hai_tui.resources.environments import ENVIRONMENTS


def test_owner_group_parent_python_lock_and_state() -> None:
    environment = pb.Environment(
        name="torch",
        owner="ada",
        parent="base[platform]",
        python_version="3.11.9",
        lock_hash="0123456789abcdef" * 4,
        visibility=pb.ENVIRONMENT_VISIBILITY_GROUP,
        user_group="vision",
        state=pb.ENVIRONMENT_STATE_READY,
    )
    told = {column.key: column.value(environment, 0.0) for column in ENVIRONMENTS.columns}
    assert told["environment"] == "torch[ada]"
    assert (told["visibility"], told["state"]) == ("GROUP vision", "READY")
    assert (told["parent"], told["python"]) == ("base[platform]", "3.11.9")
    assert told["lock"] == "0123456789ab"


def test_one_that_cannot_be_used_says_that_first() -> None:
    environment = pb.Environment(name="t", owner="ada", deprecated="use u", message="it is gone",
                                 state=pb.ENVIRONMENT_STATE_BROKEN)  # fmt: skip
    told = {column.key: column.value(environment, 0.0) for column in ENVIRONMENTS.columns}
    assert (told["state"], told["note"]) == ("BROKEN", "it is gone")
    environment.state, environment.message = pb.ENVIRONMENT_STATE_READY, ""
    told = {column.key: column.value(environment, 0.0) for column in ENVIRONMENTS.columns}
    assert (told["state"], told["note"]) == ("DEPRECATED", "use u")
