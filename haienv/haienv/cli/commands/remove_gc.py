"""`haienv remove` and `haienv gc`: delete environments, and layers that nothing uses."""

from __future__ import annotations

import click

from hai.client.text.formatting import size_text
from haienv.cli.common import (
    EnvCommand,
    Settings,
    complete_names,
    own_environment,
    require_confirmation,
)
from haienv.cli.view import aligned
from haienv.store.layout import Home, home


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

    here = home()
    unique = {
        str(each): each
        for each in (require_owner(here, own_environment(name)[1]) for name in names)
    }
    found = list(unique.values())
    if not force:
        for each in found:
            require_unused(each)
    busy = _busy_layers(here, force)
    require_confirmation(f"Remove {', '.join(map(str, found))}?", yes)
    for each in found:
        operations.remove(here, each, force, busy)
    settings.answer({"removed": [str(each) for each in found]}, "")
    settings.note(f"removed {', '.join(map(str, found))}")
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

    here = home()
    busy = _busy_layers(here, force)
    candidates = find_garbage(here, days)
    found = [each for each in candidates if each.path.name not in busy]
    in_use = [str(each.path) for each in candidates if each.path.name in busy]
    size = sum(each.size_bytes for each in found)
    document = [{"path": str(g.path), "size_bytes": g.size_bytes, "days": g.days} for g in found]
    rows = [(str(g.path), size_text(g.size_bytes), f"{g.days:.0f} days") for g in found]
    rows += [(path, "kept", "programs of tasks run in it") for path in in_use]
    answer = {"layers": document, "size_bytes": size, "in_use": in_use}
    settings.answer(answer, aligned(rows) if rows else "")
    if not dry_run and found:
        require_confirmation(f"Delete {len(found)} layers?", yes)
        delete_garbage(here, found)
    if not dry_run and cache:
        Uv(here).prune()
    settings.note(f"{size_text(size)} {'would be freed' if dry_run else 'freed'}")
    return 0


def _busy_layers(here: Home, force: bool) -> frozenset[str]:
    """Layers that programs run in; with --force none if the server cannot be reached."""
    from haienv.cluster import ServerError, layers_in_use

    try:
        return layers_in_use(here)
    except ServerError:
        if not force:
            raise
        return frozenset()
