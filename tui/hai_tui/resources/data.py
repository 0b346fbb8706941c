"""Artifacts and datasets, which tasks read and write by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hai_tui.resources.resource_spec import (
    Answers,
    Field,
    ResourceSpec,
    Verb,
    delete_verb,
    prefilled_fields,
)
from hai_tui.views.artifacts import ARTIFACTS
from hai_tui.views.storage import DATASETS

if TYPE_CHECKING:
    from hai.v1.artifact_pb2 import Artifact
    from hai.v1.dataset_pb2 import Dataset

VISIBILITIES = ("private", "group", "public")


_ARTIFACT_KEY = ("name", "version", "user_group")
_ARTIFACT_FACTS = ("type", "location", "description")


def _artifact(item: Artifact | None, answers: Answers) -> Artifact:
    from hai.v1.artifact_pb2 import Artifact

    artifact = Artifact()
    if item is not None:
        artifact.CopyFrom(item)
    for name in _ARTIFACT_FACTS if item is not None else _ARTIFACT_KEY + _ARTIFACT_FACTS:
        setattr(artifact, name, answers.text(name))
    return artifact


def _dataset(item: Any, answers: Answers) -> Dataset:
    from hai.v1.dataset_pb2 import Dataset, DatasetVisibility

    visibility = answers.choice("visibility", VISIBILITIES)
    return Dataset(
        name=answers.text("name"),
        version=answers.text("version"),
        path=answers.text("path"),
        user_group=answers.text("user_group"),
        visibility=DatasetVisibility.Value(f"DATASET_VISIBILITY_{visibility.upper()}"),
        description=answers.text("description"),
    )


RESOURCES = (
    ResourceSpec(
        "artifacts",
        ARTIFACTS,
        lambda client: client.artifacts.list(),
        (
            Verb(
                "a",
                "new",
                lambda client, artifact: client.artifacts.create(artifact),
                _artifact,
                tuple(Field(name) for name in _ARTIFACT_KEY + _ARTIFACT_FACTS),
                new=True,
            ),
            Verb(
                "e",
                "edit",
                lambda client, artifact: client.artifacts.update(artifact),
                _artifact,
                prefilled_fields(_ARTIFACT_FACTS),
            ),
            delete_verb(
                lambda client, a: client.artifacts.delete(a.name, a.version, a.user_group, a.owner)
            ),
        ),
    ),
    ResourceSpec(
        "datasets",
        DATASETS,
        lambda client: client.datasets.list(),
        (
            Verb(
                "a",
                "new",
                lambda client, dataset: client.datasets.create(dataset),
                _dataset,
                (
                    Field("name"),
                    Field("version"),
                    Field("path"),
                    Field("visibility", lambda d: "private", VISIBILITIES),
                    Field("user_group"),
                    Field("description"),
                ),
                new=True,
            ),
            delete_verb(lambda client, d: client.datasets.delete(d.name, d.version)),
        ),
    ),
)
