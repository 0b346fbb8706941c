"""`hai image …`: what tasks may run in, and what registries say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.client_call import call
from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import images as complete_images
from hai_tui.cli.completion import user_groups as complete_user_groups
from hai_tui.cli.output.output import dump, note, show, show_one
from hai_tui.cli.settings import Settings
from hai_tui.views.images import CHECKS, IMAGES

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.image_pb2 import Image

_SET_HELP = """Give an image a NAME that tasks use; REFERENCE is its registry path.

What is not named stays as it is; a new image is for everybody. For admins.

\b
Examples:
  hai image set torch registry.example/base/torch:2.6 --default
  hai image set lab registry.example/lab/main:1 --user-group vision
  hai image set lab registry.example/lab/main:2          a newer one
  hai image set lab registry.example/lab/main:2 --everybody
"""

_CHECK_HELP = """Ask the registries whether images are there, and for their digests.

\b
Examples:
  hai image check torch
  hai image check registry.example/vision/det:7 -o name    what to pin to
"""

_TAGS_HELP = """List the tags in the repository of an image.

\b
Examples:
  hai image tags torch
  hai image tags registry.example/vision/det --json
"""

_IMAGE = click.argument("image", shell_complete=complete_images)


@click.group("image", cls=HaiGroup)
def image() -> None:
    """List and check images; name them for tasks (admins)."""


@image.command("list", cls=TableCommand)
@click.pass_obj
def list_images(settings: Settings) -> int:
    """List the built-in images that you may use."""

    async def work(client: Client) -> int:
        show(settings, IMAGES, await client.images.list())
        return 0

    return call(settings, work)


@image.command("set", cls=HaiCommand, help=_SET_HELP)
@click.argument("name", shell_complete=complete_images)
@click.argument("reference")
@click.option("--default/--no-default", "is_default", default=None, help="For tasks without one.")
@click.option(
    "--user-group",
    "user_groups",
    multiple=True,
    shell_complete=complete_user_groups,
    help="Who may use it; replaces all.",
)
@click.option("--everybody", is_flag=True, help="Everybody may use it.")
@click.option("--description", help="What it is for.")
@click.pass_obj
def set_image(settings: Settings, /, name: str, reference: str, **changes: Any) -> int:
    """The function behind the command."""

    async def work(client: Client) -> int:
        changed = _changed(await _find(client, name), changes)
        changed.reference = reference
        show_one(settings, IMAGES, await client.images.set(changed))
        return 0

    return call(settings, work)


async def _find(client: Client, name: str) -> Image:
    """The image as it is, or a new one."""
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
@click.pass_obj
def delete(settings: Settings, names: tuple[str, ...]) -> int:
    """Take names back; the images stay in their registries."""

    async def work(client: Client) -> int:
        for name in names:
            await client.images.delete(name)
            note(settings, f"image {name} is deleted")
        return 0

    return call(settings, work)


@image.command("tags", cls=HaiCommand, help=_TAGS_HELP)
@_IMAGE
@click.pass_obj
def tags(settings: Settings, image: str) -> int:
    """The function behind the command."""

    async def work(client: Client) -> int:
        found = await client.images.tags(image)
        if settings.output in ("json", "yaml"):
            from hai_tui.formatting.documents import to_dict

            dump(settings, to_dict(found))
        else:
            click.echo("".join(f"{found.repository}:{tag}\n" for tag in found.tags), nl=False)
        return 0

    return call(settings, work)


@image.command("check", cls=TableCommand, help=_CHECK_HELP)
@click.argument(
    "images", metavar="IMAGE...", nargs=-1, required=True, shell_complete=complete_images
)
@click.pass_obj
def check(settings: Settings, images: tuple[str, ...]) -> int:
    """The function behind the command."""

    async def work(client: Client) -> int:
        show(settings, CHECKS, [await client.images.check(each) for each in images])
        return 0

    return call(settings, work)
