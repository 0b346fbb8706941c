"""Columns of artifacts, and of the artifacts that a task reads and writes."""

from __future__ import annotations

from hai.client.text.formatting import enum_name
from hai.v1.artifact_pb2 import Artifact, ArtifactDirection
from hai_tui.formatting.table import Column, View
from hai_tui.formatting.values import local


def artifact_reference(artifact: Artifact) -> str:
    """Return the reference by which commands name the artifact: `[GROUP/]NAME[:VERSION]`."""
    group = f"{artifact.user_group}/" if artifact.user_group else ""
    version = f":{artifact.version}" if artifact.version else ""
    return f"{group}{artifact.name}{version}"


ARTIFACTS = View(
    key="artifacts",
    name=artifact_reference,
    empty="none.artifacts",
    columns=(
        Column("artifact", lambda a, now: artifact_reference(a)),
        Column("owner", lambda a, now: a.owner),
        Column("type", lambda a, now: a.type or "-"),
        Column("location", lambda a, now: a.location or "-", folds=True),
        Column("description", lambda a, now: a.description or "-", wide=True, folds=True),
        Column("updated", lambda a, now: local(a.update_time), wide=True),
    ),
)

TASK_ARTIFACTS = View(
    key="artifacts",
    name=lambda mapped: artifact_reference(mapped.artifact),
    empty="none.artifacts",
    columns=(
        Column("task", lambda m, now: str(m.task_id), right=True),
        Column(
            "direction",
            lambda m, now: enum_name(ArtifactDirection, m.direction),
        ),
        Column("artifact", lambda m, now: artifact_reference(m.artifact)),
        Column("owner", lambda m, now: m.artifact.owner or "-"),
        Column("location", lambda m, now: m.artifact.location or "-", folds=True),
    ),
)
