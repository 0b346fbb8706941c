"""Implements `haienv pack`: images of environments, for nodes whose local disks are faster than shared storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai.client.text.formatting import size_text
from haienv.cli.common import EnvCommand, Settings, complete_names, find_own_environment
from haienv.cli.view import align_columns

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

    home, environment = find_own_environment(name)
    if remove:
        removed = [str(path) for path in packing.remove_image(home, environment)]
        settings.print_result({"removed": removed}, "")
        settings.print_note(
            f"{environment} is no longer packed" if removed else f"{environment} was not packed"
        )
        return 0
    packed_layers = packing.pack(home, environment)
    settings.print_result(
        {"layers": [_packed_document(each) for each in packed_layers]},
        align_columns(list(map(_format_row, packed_layers))),
    )
    for each in packed_layers:
        if each.image is None:
            settings.print_note(
                f"{each.environment} belongs to another user and has no image: tasks run from shared storage "
                f"until the owner runs haienv pack {each.environment.partition('[')[0]}"
            )
    return 0


def _packed_document(packed: PackedLayer) -> dict[str, object]:
    image = packed.image
    return {
        "environment": packed.environment,
        "path": str(packed.path) if image else "",
        "sha256": image.sha256 if image else "",
        "size_bytes": image.size_bytes if image else 0,
        "unpacked_bytes": image.unpacked_bytes if image else 0,
        "files": image.files if image else 0,
        "made": packed.is_new,
    }


def _format_row(packed: PackedLayer) -> tuple[str, ...]:
    if packed.image is None:
        return packed.environment, "not packed", ""
    size = f"{size_text(packed.image.size_bytes)} of {size_text(packed.image.unpacked_bytes)}"
    return (
        packed.environment,
        "packed" if packed.is_new else "was packed",
        f"{size}, {packed.image.files} files",
    )
