"""What tasks run in and read: images, registries, environments, workspaces, artifacts, datasets, mounts."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from hai_tui.cli.artifact_view import ARTIFACTS
from hai_tui.cli.commands.datasets import DATASETS
from hai_tui.cli.human import local, size
from hai_tui.cli.image_view import IMAGES, REGISTRIES
from hai_tui.cli.messages import short
from hai_tui.cli.storage_view import MOUNTS
from hai_tui.cli.table import Column, View
from hai_tui.i18n import text
from hai_tui.resources.kind import Answers, Field, Resource, Verb

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.artifact_pb2 import Artifact
    from hai.v1.dataset_pb2 import Dataset
    from hai.v1.environment_pb2 import Environment
    from hai.v1.image_pb2 import Image, ImageCheck
    from hai.v1.storage_pb2 import Mount
    from hai.v1.workspace_pb2 import Workspace

VISIBILITIES = ("private", "group", "public")
_YES_NO = ("yes", "no")


_STATES: dict[str, str] = {
    "READY": "green",
    "BUILDING": "yellow",
    "BROKEN": "red",
    "FAILED": "red",
    "DEPRECATED": "dim",
}


def _enum(message: Any, name: str) -> str:
    field = message.DESCRIPTOR.fields_by_name[name]
    return short(field.enum_type, getattr(message, name)) or "-"


def _state(environment: Environment) -> str:
    return "DEPRECATED" if environment.deprecated else _enum(environment, "state")


def _seen_by(environment: Environment) -> str:
    return " ".join(filter(None, (_enum(environment, "visibility"), environment.user_group)))


ENVIRONMENTS = View(
    key="environments",
    name=lambda e: f"{e.name}[{e.owner}]",
    empty="none.environments",
    columns=(
        Column("environment", lambda e, now: f"{e.name}[{e.owner}]"),
        Column("state", lambda e, now: _state(e), style=lambda s: _STATES.get(s, "")),
        Column("python", lambda e, now: e.python_version or "-"),
        Column("parent", lambda e, now: e.parent or "-"),
        Column("packages", lambda e, now: str(e.packages), right=True),
        Column("size", lambda e, now: size(e.size_bytes), right=True),
        Column("visibility", lambda e, now: _seen_by(e)),
        Column("lock", lambda e, now: e.lock_hash[:12] or "-", folds=True),
        Column("used_by", lambda e, now: ",".join(map(str, e.used_by)) or "-", folds=True),
        Column(
            "note", lambda e, now: e.deprecated or e.message or e.description or "-", folds=True
        ),
        Column("updated", lambda e, now: local(e.update_time), wide=True),
    ),
)


def _lease(workspace: Workspace) -> str:
    return workspace.lease.holder if workspace.HasField("lease") else "-"


def _full(workspace: Workspace) -> str:
    stored = size(workspace.stored_bytes)
    if not workspace.quota_bytes:
        return stored
    return f"{stored} / {size(workspace.quota_bytes)}"


WORKSPACES = View(
    key="workspaces",
    name=lambda w: w.name,
    empty="none.workspaces",
    columns=(
        Column("workspace", lambda w, now: w.name),
        Column("revision", lambda w, now: str(w.revision), right=True),
        Column("files", lambda w, now: f"{w.files:,}", right=True),
        Column("size", lambda w, now: size(w.size_bytes), right=True),
        Column("stored", lambda w, now: _full(w), right=True),
        Column("updated", lambda w, now: local(w.update_time)),
        Column("written_by", lambda w, now: _lease(w), folds=True),
    ),
)


def _same(names: Sequence[str]) -> tuple[Field, ...]:
    """Fields that begin with what the item has."""
    return tuple(Field(name, attrgetter(name)) for name in names)


def _image(item: Any, answers: Answers) -> Image:
    from hai.v1.image_pb2 import Image

    return Image(
        name=answers.text("name"),
        reference=answers.text("reference"),
        user_groups=answers.words("user_groups"),
        is_default=answers.flag("is_default"),
        description=answers.text("description"),
    )


def _checked(found: ImageCheck) -> str:
    return text(
        "image.checked", reference=found.reference, digest=found.digest, pinned=found.pinned
    )


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

    seen = answers.choice("visibility", VISIBILITIES)
    return Dataset(
        name=answers.text("name"),
        version=answers.text("version"),
        path=answers.text("path"),
        user_group=answers.text("user_group"),
        visibility=DatasetVisibility.Value(f"DATASET_VISIBILITY_{seen.upper()}"),
        description=answers.text("description"),
    )


async def _mounts(client: Client) -> Sequence[Mount]:
    return (await client.storage.mounts()).mounts


def _registry(item: Any, answers: Answers) -> tuple[Any, str | None]:
    from hai.v1.image_pb2 import Registry

    made = Registry(
        prefix=answers.text("prefix"),
        username=answers.text("username"),
        plain_http=answers.flag("plain_http"),
        pull_secret=answers.text("pull_secret"),
    )
    return made, answers.text("password") or None


_IMAGE_FIELDS = ("name", "reference", "description")

RESOURCES = (
    Resource(
        "images",
        IMAGES,
        lambda client: client.images.list(),
        (
            Verb(
                "a",
                "new",
                lambda client, made: client.images.set(made),
                _image,
                (
                    Field("name"),
                    Field("reference"),
                    Field("user_groups"),
                    Field("is_default", lambda i: "no", _YES_NO),
                    Field("description"),
                ),
                new=True,
                right="manage_images",
            ),
            Verb(
                "e",
                "edit",
                lambda client, made: client.images.set(made),
                _image,
                (
                    *_same(_IMAGE_FIELDS),
                    Field("user_groups", lambda i: ",".join(i.user_groups)),
                    Field("is_default", lambda i: "yes" if i.is_default else "no", _YES_NO),
                ),
                right="manage_images",
            ),
            Verb(
                "K",
                "check",
                lambda client, i: client.images.check(i.name),
                writes=False,
                said=_checked,
            ),
            Verb(
                "ctrl+d",
                "delete",
                lambda client, i: client.images.delete(i.name),
                asks=True,
                right="manage_images",
            ),
        ),
    ),
    Resource(
        "registries",
        REGISTRIES,
        lambda client: client.images.registries(),
        (
            Verb(
                "a",
                "new",
                lambda client, made: client.images.set_registry(*made),
                _registry,
                (
                    Field("prefix"),
                    Field("username"),
                    Field("password"),
                    Field("plain_http", lambda r: "no", _YES_NO),
                    Field("pull_secret"),
                ),
                new=True,
                right="manage_images",
            ),
            Verb(
                "ctrl+d",
                "delete",
                lambda client, r: client.images.delete_registry(r.prefix),
                asks=True,
                right="manage_images",
            ),
        ),
    ),
    Resource(
        "environments",
        ENVIRONMENTS,
        lambda client: client.environments.list(),
        (
            Verb(
                "ctrl+d",
                "delete",
                lambda client, e: client.environments.delete(e.name, e.owner),
                asks=True,
            ),
        ),
    ),
    Resource(
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
            Verb(
                "ctrl+d",
                "delete",
                lambda client, w: client.workspaces.delete(w.name, w.user),
                asks=True,
            ),
        ),
    ),
    Resource(
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
                _same(("type", "location", "description")),
            ),
            Verb(
                "ctrl+d",
                "delete",
                lambda client, a: client.artifacts.delete(a.name, a.version, a.user_group, a.owner),
                asks=True,
            ),
        ),
    ),
    Resource(
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
                asks=True,
            ),
        ),
    ),
    Resource("mounts", MOUNTS, _mounts),
)
