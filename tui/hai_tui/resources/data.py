"""What tasks read and write by name: artifacts and datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hai_tui.resources.resource_spec import Answers, Field, ResourceSpec, Verb, unchanged_fields
from hai_tui.views.artifacts import ARTIFACTS
from hai_tui.views.storage import DATASETS

if TYPE_CHECKING:
    from hai.v1.artifact_pb2 import Artifact
    from hai.v1.dataset_pb2 import Dataset

VISIBILITIES = ("private", "group", "public")


def _artifact(item: Any, answers: Answers) -> Artifact:
    from hai.v1.artifact_pb2 import Artifact

    names = ("name", "version", "user_group", "type", "location", "description")
    made = Artifact()
    for name in names:
        setattr(made, name, answers.text(name))
    return made


def _changed_artifact(item: Artifact, answers: Answers) -> Artifact:
    from hai.v1.artifact_pb2 import Artifact

    changed = Artifact()
    changed.CopyFrom(item)
    for name in ("type", "location", "description"):
        setattr(changed, name, answers.text(name))
    return changed


def _dataset(item: Any, answers: Answers) -> Dataset:
    from hai.v1.dataset_pb2 import Dataset, DatasetVisibility

    visibility_name = answers.choice("visibility", VISIBILITIES)
    return Dataset(
        name=answers.text("name"),
        version=answers.text("version"),
        path=answers.text("path"),
        user_group=answers.text("user_group"),
        visibility=DatasetVisibility.Value(f"DATASET_VISIBILITY_{visibility_name.upper()}"),
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
                lambda client, made: client.artifacts.create(made),
                _artifact,
                tuple(
                    Field(name)
                    for name in ("name", "version", "user_group", "type", "location", "description")
                ),
                new=True,
            ),
            Verb(
                "e",
                "edit",
                lambda client, made: client.artifacts.update(made),
                _changed_artifact,
                unchanged_fields(("type", "location", "description")),
            ),
            Verb(
                "ctrl+d",
                "delete",
                lambda client, a: client.artifacts.delete(a.name, a.version, a.user_group, a.owner),
                needs_confirmation=True,
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
                lambda client, made: client.datasets.create(made),
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
            Verb(
                "ctrl+d",
                "delete",
                lambda client, d: client.datasets.delete(d.name, d.version),
                needs_confirmation=True,
            ),
        ),
    ),
)
