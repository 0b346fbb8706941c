"""Node groups: their numbers, and a change of their scheduling policy with a preview of the next pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hai_tui.i18n import text
from hai_tui.resources.resource_spec import YES_NO, Answers, Field, ResourceSpec, Verb
from hai_tui.views.nodes import GROUPS, effect_lines
from hai_tui.views.policy import NAMES, policy_of, settings_of

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.node_pb2 import Group

_SERVERS = "server"
"""Typed for a setting that follows the server."""


def _value(group: Group, name: str) -> str:
    return settings_of(group.policy).get(name, _SERVERS)


def _fields() -> tuple[Field, ...]:
    packed = Field("packed", lambda g: "yes" if g.packed else "no", YES_NO)
    settings = (
        Field(name, lambda g, name=name: _value(g, name), violation=f"policy.{name}")  # type: ignore[misc]
        for name in NAMES
    )
    return (packed, *settings)


def _change(group: Group, answers: Answers) -> dict[str, Any]:
    """What is other than it is now."""
    from hai.v1.policy_pb2 import SchedulingPolicy

    policy, unset = SchedulingPolicy(), []
    for name in NAMES:
        typed_text = answers.text(name) or _SERVERS
        if typed_text == _value(group, name):
            continue
        if typed_text == _SERVERS:
            unset.append(name)
            continue
        try:
            policy.MergeFrom(policy_of([(name, typed_text)]))
        except click.BadParameter as error:
            answers.wrong[name] = error.message
    packed = answers.flag("packed")
    return {
        "name": group.name,
        "packed": packed if packed != group.packed else None,
        "policy": policy,
        "unset": unset,
    }


def _effect_text(group: Group) -> str:
    lines = list(effect_lines(group.effect)) or [text("preview.none")]
    return "\n".join([*lines, "", text("policy.preview.done")])


async def _preview(client: Client, change: dict[str, Any]) -> Group:
    return await client.nodes.update_group(**change, preview=True)


RESOURCES = (
    ResourceSpec(
        "groups",
        GROUPS,
        lambda client: client.nodes.groups(),
        (
            Verb(
                "v",
                "preview",
                _preview,
                _change,
                _fields(),
                right="manage_nodes",
                writes=False,
                result_text=_effect_text,
            ),
            Verb(
                "e",
                "edit",
                lambda client, change: client.nodes.update_group(**change),
                _change,
                _fields(),
                right="manage_nodes",
            ),
        ),
    ),
)
