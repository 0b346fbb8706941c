"""Names of node groups that are perhaps mistyped. They are only questioned: settings may come before nodes."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from hai_tui.cli.settings import Settings
from hai_tui.cli.show import note

if TYPE_CHECKING:
    from hai.client.client import Client


async def question_group(client: Client, settings: Settings, name: str) -> None:
    """A note when no node belongs to the group."""
    groups = {group.name: group for group in await client.nodes.groups()}
    if name in groups and groups[name].nodes:
        return
    near = get_close_matches(name, [g for g in groups if groups[g].nodes], n=1)
    meant = (
        f"did you mean {near[0]}?"
        if near
        else "is it written so? `hai groups` lists those with nodes"
    )
    note(settings, f"no node belongs to the group {name} now: {meant}")
