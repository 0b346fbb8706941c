"""Workspaces, as the server stores them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hai.client.text.formatting import size_text
from hai_tui.formatting.table import Column, View
from hai_tui.formatting.values import local
from hai_tui.resources.resource_spec import Field, ResourceSpec, Verb, delete_verb

if TYPE_CHECKING:
    from hai.v1.workspace_pb2 import Workspace


def _lease_holder(workspace: Workspace) -> str:
    return workspace.lease.holder if workspace.HasField("lease") else "-"


def _stored_text(workspace: Workspace) -> str:
    stored = size_text(workspace.stored_bytes)
    if not workspace.quota_bytes:
        return stored
    return f"{stored} / {size_text(workspace.quota_bytes)}"


WORKSPACES = View(
    key="workspaces",
    name=lambda w: w.name,
    empty="none.workspaces",
    columns=(
        Column("workspace", lambda w, now: w.name),
        Column("revision", lambda w, now: str(w.revision), right=True),
        Column("files", lambda w, now: f"{w.files:,}", right=True),
        Column("size", lambda w, now: size_text(w.size_bytes), right=True),
        Column("stored", lambda w, now: _stored_text(w), right=True),
        Column("updated", lambda w, now: local(w.update_time)),
        Column("written_by", lambda w, now: _lease_holder(w), folds=True),
    ),
)

RESOURCES = (
    ResourceSpec(
        "workspaces",
        WORKSPACES,
        lambda client: client.workspaces.list(),
        (
            Verb(
                "a",
                "new",
                lambda client, name: client.workspaces.create(name),
                lambda item, answers: answers.text("name"),
                (Field("name"),),
                new=True,
            ),
            delete_verb(lambda client, w: client.workspaces.delete(w.name, w.user)),
        ),
    ),
)
