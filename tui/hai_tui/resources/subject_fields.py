"""Quotas and rights are given to a user or to a group, and may end."""

from __future__ import annotations

from typing import Any

from hai_tui.resources.resource_spec import YES_NO, Answers, Field

IS_GROUP = Field("subject_is_group", lambda item: "no", YES_NO)
EXPIRES = Field("expires", violation="expire_time")


def set_expiry(made: Any, answers: Answers) -> None:
    """Set when it ends, or that it does not."""
    made.ClearField("expire_time")
    if (expires := answers.time("expires")) is not None:
        made.expire_time.FromDatetime(expires)
