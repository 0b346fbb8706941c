"""`hai artifact …`: inputs and outputs of tasks, with a name and a version."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import complete_artifacts, complete_tasks, complete_user_groups
from hai_tui.cli.output.output import note, show, show_one
from hai_tui.cli.parameters import combine
from hai_tui.cli.settings import Settings, with_client
from hai_tui.views.artifacts import ARTIFACTS, TASK_ARTIFACTS

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.artifact_pb2 import Artifact


class ArtifactName(NamedTuple):
    """The identity of an artifact."""

    name: str
    version: str
    user_group: str


class _Reference(click.ParamType[ArtifactName]):
    """An artifact on the command line: [USER_GROUP/]NAME[:VERSION]."""

    name = "artifact"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> ArtifactName:
        group, _, name_and_version = str(value).rpartition("/")
        name, _, version = name_and_version.partition(":")
        if not name or "/" in group:
            self.fail(f"{value!r} must be NAME[:VERSION] or USER_GROUP/NAME[:VERSION]", param, ctx)
        return ArtifactName(name, version, group)


_ARTIFACT = click.argument("artifact", type=_Reference(), shell_complete=complete_artifacts)
_TASK = click.argument("task_id", metavar="TASK", type=int, shell_complete=complete_tasks)
_values = combine(
    click.option("--type", "type", help="What it is: model, log, …."),
    click.option("--location", help="Where it is: a path or an address."),
    click.option("--description", help="What it is for."),
)


_DIRECTIONS = click.Choice(
    ["input", "output"]
)  # not --input and --output: --output is a common option


@click.group("artifact", cls=HaiGroup)
def artifact() -> None:
    """List artifacts, change them, and give them to tasks."""


@artifact.command("list", cls=TableCommand)
@click.argument("name", default="")
@click.option("--user-group", default="", shell_complete=complete_user_groups, help="Of this one.")
@click.option("--task", "task_id", type=int, shell_complete=complete_tasks, help="Of this task.")
@with_client
async def list_artifacts(
    settings: Settings, client: Client, name: str, user_group: str, task_id: int | None
) -> None:
    """List your artifacts and those of your user groups, or the artifacts of a task.

    \b
    Examples:
      hai artifact list
      hai artifact list --user-group vision
      hai artifact list --task 12
    """
    if task_id is None:
        show(settings, ARTIFACTS, await client.artifacts.list(name, user_group))
    else:
        show(settings, TASK_ARTIFACTS, await client.artifacts.of_task(task_id))


@artifact.command("get", cls=TableCommand)
@_ARTIFACT
@with_client
async def get(settings: Settings, client: Client, artifact: ArtifactName) -> None:
    """Show one artifact."""
    show_one(settings, ARTIFACTS, await client.artifacts.get(*artifact))


@artifact.command("create", cls=HaiCommand)
@_ARTIFACT
@_values
@with_client
async def create(
    settings: Settings, client: Client, /, artifact: ArtifactName, **values: str | None
) -> None:
    """Add an artifact: a location with a name and a version.

    ARTIFACT is NAME[:VERSION] for a private one, USER_GROUP/NAME[:VERSION] for one
    of a user group. Without a version it is `default`.

    \b
    Examples:
      hai artifact create resnet:1 --type model --location /ws/ada/resnet-1
      hai artifact create vision/resnet:1 --location s3://bucket/resnet
    """
    from hai.v1.artifact_pb2 import Artifact

    new = _changed(Artifact(**artifact._asdict()), values)

    show_one(settings, ARTIFACTS, await client.artifacts.create(new))


@artifact.command("update", cls=HaiCommand)
@_ARTIFACT
@_values
@with_client
async def update(
    settings: Settings, client: Client, /, artifact: ArtifactName, **values: str | None
) -> None:
    """Change an artifact; options that are not given stay as they are.

    \b
    Examples:
      hai artifact update vision/resnet:1 --description 'the good one'
    """
    changed = _changed(await client.artifacts.get(*artifact), values)
    show_one(settings, ARTIFACTS, await client.artifacts.update(changed))


def _changed(artifact: Artifact, values: dict[str, str | None]) -> Artifact:
    for key, value in values.items():
        if value is not None:
            setattr(artifact, key, value)
    return artifact


@artifact.command("delete", cls=HaiCommand)
@_ARTIFACT
@with_client
async def delete(settings: Settings, client: Client, artifact: ArtifactName) -> None:
    """Delete an artifact; the files that it points to stay."""
    await client.artifacts.delete(*artifact)
    note(settings, f"artifact {artifact.name} is deleted; its files stay")


@artifact.command("map", cls=HaiCommand)
@_TASK
@_ARTIFACT
@click.option("--as", "direction", type=_DIRECTIONS, required=True, help="How the task uses it.")
@with_client
async def map_artifact(
    settings: Settings, client: Client, task_id: int, artifact: ArtifactName, direction: str
) -> None:
    """Give a task an artifact as input or output: at most one each.

    A task may have its owner's artifacts; when it is shared in the user group also
    those of others in the group.

    \b
    Examples:
      hai artifact map 12 resnet:1 --as input
      hai artifact map 12 vision/resnet:2 --as output
    """
    from hai.v1.artifact_pb2 import ArtifactDirection

    chosen = ArtifactDirection.Value(f"ARTIFACT_DIRECTION_{direction.upper()}")

    show_one(settings, TASK_ARTIFACTS, await client.artifacts.map(task_id, chosen, *artifact))


@artifact.command("unmap", cls=HaiCommand)
@_TASK
@click.option("--as", "direction", type=_DIRECTIONS, help="Default: both.")
@with_client
async def unmap(settings: Settings, client: Client, task_id: int, direction: str | None) -> None:
    """Remove the input or output artifact of a task; by default both."""
    from hai.v1.artifact_pb2 import ArtifactDirection

    chosen = ArtifactDirection.Value(f"ARTIFACT_DIRECTION_{(direction or 'unspecified').upper()}")

    await client.artifacts.unmap(task_id, chosen)
    note(settings, f"task {task_id} has no {direction or 'artifact'} any more")
