"""`haienv pack`: images of environments, for nodes whose local disks are faster than shared storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai.client.text.formatting import size_text
from haienv.cli.common import EnvCommand, Settings, complete_names, own_environment
from haienv.cli.view import aligned

if TYPE_CHECKING:
    from haienv.layers.packing import PackedLayer


@click.command("pack", cls=EnvCommand)
@click.argument("name", default=".", shell_complete=complete_names)
@click.option("--remove", is_flag=True, help="Remove the image.")
@click.pass_obj
def pack(settings: Settings, name: str, remove: bool) -> int:
    """Pack images of an environment's layer and of those of your parents.

    Nodes that copy environments to local disks unpack each image once; tasks run in the copy. They
    run from shared storage if a layer has no image.
    """
    from haienv.layers import packing

    here, found = own_environment(name)
    if remove:
        removed = [str(path) for path in packing.remove_image(here, found)]
        settings.answer({"removed": removed}, "")
        settings.note(f"{found} is no longer packed" if removed else f"{found} was not packed")
        return 0
    packed_layers = packing.pack(here, found)
    settings.answer(
        {"layers": [_document(each) for each in packed_layers]},
        aligned(list(map(_row, packed_layers))),
    )
    for each in packed_layers:
        if each.image is None:
            settings.note(
                f"{each.environment} belongs to another user and has no image: tasks run from shared storage "
                f"until the owner runs haienv pack {each.environment.partition('[')[0]}"
            )
    return 0


def _document(each: PackedLayer) -> dict[str, object]:
    image = each.image
    return {
        "environment": each.environment,
        "path": str(each.path) if image else "",
        "sha256": image.sha256 if image else "",
        "size_bytes": image.size_bytes if image else 0,
        "unpacked_bytes": image.unpacked_bytes if image else 0,
        "files": image.files if image else 0,
        "made": each.made,
    }


def _row(each: PackedLayer) -> tuple[str, ...]:
    if each.image is None:
        return each.environment, "not packed", ""
    size = f"{size_text(each.image.size_bytes)} of {size_text(each.image.unpacked_bytes)}"
    return (
        each.environment,
        "packed" if each.made else "was packed",
        f"{size}, {each.image.files} files",
    )
