"""Implements `haienv remove` and `haienv gc`: delete environments, and layers that nothing uses."""

from __future__ import annotations

import click

from hai.client.text.formatting import size_text
from haienv.cli.common import (
    EnvCommand,
    Settings,
    complete_names,
    find_own_environment,
    require_confirmation,
)
from haienv.cli.view import align_columns
from haienv.store.layout import Home


@click.command("remove", cls=EnvCommand)
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_names)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--force", is_flag=True, help="Also if others extend it or tasks use it.")
@click.pass_obj
def remove(settings: Settings, names: tuple[str, ...], yes: bool, force: bool) -> int:
    """Remove environments, unless others extend them or unfinished tasks use them."""
    from haienv import operations
    from haienv.cluster import require_unused
    from haienv.store.access import require_owner

    home = Home.from_environ()
    owned = (require_owner(home, find_own_environment(name)[1]) for name in names)
    environments = list({str(each): each for each in owned}.values())
    if not force:
        for each in environments:
            require_unused(each)
    busy_layers = _list_busy_layers(home, force)
    require_confirmation(f"Remove {', '.join(map(str, environments))}?", yes)
    for each in environments:
        operations.remove(home, each, force, busy_layers)
    settings.print_result({"removed": [str(each) for each in environments]}, "")
    settings.print_note(f"removed {', '.join(map(str, environments))}")
    return 0


@click.command("gc", cls=EnvCommand)
@click.option("--days", default=7.0, show_default=True, help="Minimum days since the last use.")
@click.option("--cache", is_flag=True, help="Also prune the cache of wheels.")
@click.option("--dry-run", is_flag=True, help="Only list the layers.")
@click.option("--force", is_flag=True, help="Also if the server cannot report what tasks use.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def gc(settings: Settings, days: float, cache: bool, dry_run: bool, force: bool, yes: bool) -> int:
    """Delete layers that no environment has used for some days.

    Layers that programs of tasks run in are kept, and so is the previous layer of each environment,
    for --rollback.
    """
    from haienv.backends.uv import Uv
    from haienv.layers.gc import delete_garbage, find_garbage

    home = Home.from_environ()
    busy_layers = _list_busy_layers(home, force)
    candidates = find_garbage(home, days)
    garbage = [each for each in candidates if each.path.name not in busy_layers]
    in_use = [str(each.path) for each in candidates if each.path.name in busy_layers]
    size = sum(each.size_bytes for each in garbage)
    document = [{"path": str(g.path), "size_bytes": g.size_bytes, "days": g.days} for g in garbage]
    rows = [(str(g.path), size_text(g.size_bytes), f"{g.days:.0f} days") for g in garbage]
    rows += [(path, "kept", "programs of tasks run in it") for path in in_use]
    answer = {"layers": document, "size_bytes": size, "in_use": in_use}
    settings.print_result(answer, align_columns(rows) if rows else "")
    if not dry_run and garbage:
        require_confirmation(f"Delete {len(garbage)} layers?", yes)
        delete_garbage(home, garbage)
    if not dry_run and cache:
        Uv(home).prune_cache()
    settings.print_note(f"{size_text(size)} {'would be freed' if dry_run else 'freed'}")
    return 0


def _list_busy_layers(home: Home, force: bool) -> frozenset[str]:
    """Return the layers in which programs run; empty if the server cannot be reached and `force` is set."""
    from haienv.cluster import ServerError, layers_in_use

    try:
        return layers_in_use(home)
    except ServerError:
        if not force:
            raise
        return frozenset()
