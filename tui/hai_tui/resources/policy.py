"""Node groups: their size, and changes of their scheduling policy, with a preview of the next scheduling pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hai_tui.i18n import text
from hai_tui.resources.resource_spec import YES_NO, Answers, Field, ResourceSpec, Verb
from hai_tui.views.nodes import GROUPS, effect_lines
from hai_tui.views.policy import SETTING_HINTS, parse_policy, settings_text

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.node_pb2 import Group

_SERVER_DEFAULT = "server"
"""The word that a user types for a setting that the group takes from the server."""


def _value(group: Group, name: str) -> str:
    return settings_text(group.policy).get(name, _SERVER_DEFAULT)


def _fields() -> tuple[Field, ...]:
    packed = Field("packed", lambda g: "yes" if g.packed else "no", YES_NO)
    settings = (
        Field(name, lambda g, name=name: _value(g, name), violation=f"policy.{name}")  # type: ignore[misc]
        for name in SETTING_HINTS
    )
    return (packed, *settings)


def _change(group: Group, answers: Answers) -> dict[str, Any]:
    """Return the arguments of `update_group` for the settings that the answers change."""
    from hai.v1.policy_pb2 import SchedulingPolicy

    policy, unset = SchedulingPolicy(), []
    for name in SETTING_HINTS:
        value = answers.text(name) or _SERVER_DEFAULT
        if value == _value(group, name):
            continue
        if value == _SERVER_DEFAULT:
            unset.append(name)
            continue
        try:
            policy.MergeFrom(parse_policy([(name, value)]))
        except click.BadParameter as error:
            answers.errors[name] = error.message
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
