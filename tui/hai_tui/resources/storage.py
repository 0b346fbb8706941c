"""Mounts, which make storage visible to programs, and the rules that say which user sees which mount."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hai_tui.resources.resource_spec import YES_NO, Answers, Field, ResourceSpec, Verb, delete_verb
from hai_tui.views.storage import MOUNTS, RULES

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.storage_pb2 import Mount, MountRule

KINDS = ("host_path", "nfs", "pvc", "config_map", "csi", "tmpfs")


async def _mounts(client: Client) -> Sequence[Mount]:
    return (await client.storage.mounts()).mounts


def _rule(item: Any, answers: Answers) -> MountRule:
    from hai.v1.storage_pb2 import MountKind, MountRule

    kind = answers.choice("kind", KINDS)
    return MountRule(
        owners=answers.list_of("owners"),
        mount_path=answers.text("mount_path"),
        source=answers.text("source"),
        kind=MountKind.Value(f"MOUNT_KIND_{kind.upper()}"),
        host_type=answers.text("host_type"),
        conditions=answers.list_of("conditions"),
        writable=answers.flag("writable"),
    )


RESOURCES = (
    ResourceSpec("mounts", MOUNTS, _mounts),
    ResourceSpec(
        "rules",
        RULES,
        lambda client: client.storage.rules(),
        (
            Verb(
                "a",
                "new",
                lambda client, rule: client.storage.create_rule(rule),
                _rule,
                (
                    Field("owners", lambda r: "public"),
                    Field("mount_path"),
                    Field("source"),
                    Field("kind", lambda r: "host_path", KINDS),
                    Field("host_type"),
                    Field("conditions"),
                    Field("writable", lambda r: "no", YES_NO),
                ),
                new=True,
                right="manage_storage",
            ),
            delete_verb(lambda client, r: client.storage.delete_rule(r.id), right="manage_storage"),
        ),
    ),
)
