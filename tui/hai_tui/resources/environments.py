"""Python environments, in which programs run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hai.client.text.formatting import size_text
from hai_tui.formatting.documents import short
from hai_tui.formatting.table import Column, View
from hai_tui.formatting.values import local
from hai_tui.resources.resource_spec import ResourceSpec, delete_verb

if TYPE_CHECKING:
    from hai.v1.environment_pb2 import Environment

_STATES: dict[str, str] = {
    "READY": "green",
    "BUILDING": "yellow",
    "BROKEN": "red",
    "FAILED": "red",
    "DEPRECATED": "dim",
}


def _enum_text(message: Any, name: str) -> str:
    field = message.DESCRIPTOR.fields_by_name[name]
    return short(field.enum_type, getattr(message, name)) or "-"


def _state_name(environment: Environment) -> str:
    state = _enum_text(environment, "state")
    return "DEPRECATED" if environment.deprecated and state == "READY" else state


def _visibility(environment: Environment) -> str:
    return " ".join(filter(None, (_enum_text(environment, "visibility"), environment.user_group)))


ENVIRONMENTS = View(
    key="environments",
    name=lambda e: f"{e.name}[{e.owner}]",
    empty="none.environments",
    columns=(
        Column("environment", lambda e, now: f"{e.name}[{e.owner}]"),
        Column("state", lambda e, now: _state_name(e), style=lambda s: _STATES.get(s, "")),
        Column("python", lambda e, now: e.python_version or "-"),
        Column("parent", lambda e, now: e.parent or "-"),
        Column("packages", lambda e, now: str(e.packages), right=True),
        Column("size", lambda e, now: size_text(e.size_bytes), right=True),
        Column("visibility", lambda e, now: _visibility(e)),
        Column("lock", lambda e, now: e.lock_hash[:12] or "-", folds=True),
        Column("used_by", lambda e, now: ",".join(map(str, e.used_by)) or "-", folds=True),
        Column(
            "note", lambda e, now: e.message or e.deprecated or e.description or "-", folds=True
        ),
        Column("updated", lambda e, now: local(e.update_time), wide=True),
    ),
)

RESOURCES = (
    ResourceSpec(
        "environments",
        ENVIRONMENTS,
        lambda client: client.environments.list(),
        (delete_verb(lambda client, e: client.environments.delete(e.name, e.owner)),),
    ),
)
