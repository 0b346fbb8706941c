"""`hai image …`: images that tasks may run in, and queries to their registries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import complete_images, complete_user_groups
from hai_tui.cli.output.output import dump, note, show, show_one
from hai_tui.cli.settings import Settings, with_client
from hai_tui.views.images import CHECKS, IMAGES

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.image_pb2 import Image

_IMAGE = click.argument("image", shell_complete=complete_images)


@click.group("image", cls=HaiGroup)
def image() -> None:
    """List and check images; name them for tasks (admins)."""


@image.command("list", cls=TableCommand)
@with_client
async def list_images(settings: Settings, client: Client) -> None:
    """List the built-in images that you may use."""
    show(settings, IMAGES, await client.images.list())


@image.command("set", cls=HaiCommand)
@click.argument("name", shell_complete=complete_images)
@click.argument("reference")
@click.option(
    "--default/--no-default",
    "is_default",
    default=None,
    help="Use it for tasks that name no image.",
)
@click.option(
    "--user-group",
    "user_groups",
    multiple=True,
    shell_complete=complete_user_groups,
    help="Who may use it; replaces all groups.",
)
@click.option("--everybody", is_flag=True, help="Everybody may use it.")
@click.option("--description", help="What it is for.")
@with_client
async def set_image(
    settings: Settings, client: Client, /, name: str, reference: str, **changes: Any
) -> None:
    """Give an image a NAME that tasks use; REFERENCE is its registry path.

    Options that are not given stay as they are; everybody may use a new image. For admins.

    \b
    Examples:
      hai image set torch registry.example/base/torch:2.6 --default
      hai image set lab registry.example/lab/main:1 --user-group vision
      hai image set lab registry.example/lab/main:2          a newer one
      hai image set lab registry.example/lab/main:2 --everybody
    """
    changed = _changed(await _find(client, name), changes)
    changed.reference = reference
    show_one(settings, IMAGES, await client.images.set(changed))


async def _find(client: Client, name: str) -> Image:
    """Return the image of the server, or a new one."""
    from hai.v1.image_pb2 import Image

    found = (known for known in await client.images.list() if known.name == name)
    return next(found, Image(name=name))


def _changed(image: Image, changes: dict[str, Any]) -> Image:
    if changes["user_groups"] or changes["everybody"]:
        image.user_groups[:] = () if changes["everybody"] else changes["user_groups"]
    for key in ("is_default", "description"):
        if changes[key] is not None:
            setattr(image, key, changes[key])
    return image


@image.command("delete", cls=HaiCommand)
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_images)
@with_client
async def delete(settings: Settings, client: Client, names: tuple[str, ...]) -> None:
    """Delete names of images; the images stay in their registries."""
    for name in names:
        await client.images.delete(name)
        note(settings, f"image {name} is deleted")


@image.command("tags", cls=HaiCommand)
@_IMAGE
@with_client
async def tags(settings: Settings, client: Client, image: str) -> None:
    """List the tags in the repository of an image.

    \b
    Examples:
      hai image tags torch
      hai image tags registry.example/vision/det --json
    """
    found = await client.images.tags(image)
    if settings.structured:
        from hai_tui.formatting.documents import to_dict

        dump(settings, to_dict(found))
    else:
        click.echo("".join(f"{found.repository}:{tag}\n" for tag in found.tags), nl=False)


@image.command("check", cls=TableCommand)
@click.argument(
    "images", metavar="IMAGE...", nargs=-1, required=True, shell_complete=complete_images
)
@with_client
async def check(settings: Settings, client: Client, images: tuple[str, ...]) -> None:
    """Ask the registries whether images exist, and for their digests.

    \b
    Examples:
      hai image check torch
      hai image check registry.example/vision/det:7 -o name    what to pin to
    """
    show(settings, CHECKS, [await client.images.check(each) for each in images])
