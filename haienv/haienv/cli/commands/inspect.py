"""`haienv list`, `info`, `which`, `freeze`, `lock`, `diff`: read-only commands."""

from __future__ import annotations

from typing import Any

import click

from hai.client.text.formatting import size_text
from haienv.cli.common import EnvCommand, Settings, complete_names, find_environment
from haienv.cli.view import aligned, as_dict, table, value_text
from haienv.errors import NotFound
from haienv.layers.installed import versions
from haienv.names import SYSTEM, check_name
from haienv.store.layout import CURRENT_LINK, home
from haienv.store.registry import Environment, children, current_parent, list_all

_NAME = click.argument("name", default=".", shell_complete=complete_names)
_USER = click.option("-u", "--user", help="Owner of the environment.")


@click.command("list", cls=EnvCommand)
@click.option("-u", "--user", help="Only environments of this user.")
@click.option(
    "-a", "--all", "include_broken", is_flag=True, help="Include broken environments of others."
)
@click.option("--names", "only_names", is_flag=True, help="Only print names.")
@click.option("--remote", is_flag=True, help="List environments on the cluster, for `haienv pull`.")
@click.pass_obj
def listing(
    settings: Settings, user: str | None, include_broken: bool, only_names: bool, remote: bool
) -> int:
    """List environments: the system's, yours, and those of others that you may use."""
    owner = check_name(user, "user") if user else ""
    if remote:
        from haienv.cluster import list_remote

        me, found = list_remote(owner)
    else:
        here = home()
        me, found = here.user, [as_dict(each) for each in list_all(here, owner)]
    visible = [
        each for each in found if include_broken or each["state"] == "READY" or each["owner"] == me
    ]
    groups: dict[str, list[dict[str, Any]]] = {"system": [], "own": [], "others": []}
    for each in visible:
        groups[_group(each["owner"], me)].append(each)
    ordered = [each for group in groups.values() for each in group]
    if only_names and not settings.json:
        click.echo("".join(f"{_short(each, me)}\n" for each in ordered), nl=False)
        return 0
    settings.answer(groups, table(ordered) if ordered else "")
    if not ordered:
        settings.note(_empty_note(user, remote))
    if broken := [_short(each, me) for each in visible if each["state"] == "BROKEN"]:
        hint = "haienv list --remote --json" if remote else f"haienv info {broken[0]}"
        settings.note(f"`{hint}` says why it is broken")
    if hidden := len(found) - len(visible):
        settings.note(f"{hidden} broken environments of others are not shown (-a shows them)")
    return 0


def _empty_note(user: str | None, remote: bool) -> str:
    if user:
        return f"{user} has no environments that you can see{' on the cluster' if remote else ''}"
    if remote:
        return "the cluster has no environments that you can see: haienv push NAME"
    return "no environments yet: haienv create NAME"


def _group(owner: str, user: str) -> str:
    if owner == user:
        return "own"
    return "system" if owner == SYSTEM else "others"


def _short(each: dict[str, Any], user: str) -> str:
    return each["name"] if each["owner"] == user else f"{each['name']}[{each['owner']}]"


@click.command("info", cls=EnvCommand)
@_NAME
@_USER
@click.option("--tasks", is_flag=True, help="Also list unfinished tasks that use it.")
@click.option("--disk", is_flag=True, help="Also show how many bytes removing it would free.")
@click.pass_obj
def info(settings: Settings, name: str, user: str | None, tasks: bool, disk: bool) -> int:
    """Show details of an environment: parents, children, size, whether its parent changed."""
    here, found = find_environment(name, user)
    layer = found.layer
    below = [p.name + f"[{p.owner}]" for p in layer.parents] if layer else []
    above = children(here, found.owner, frozenset({found.layer_id})) if found.layer_id else []
    newer = _parent_moved(found, current_parent(here, found))
    document = {
        **as_dict(found),
        "interpreter": layer.interpreter if layer else "",
        "platform": layer.platform if layer else "",
        "cuda_driver": layer.cuda if layer else "",
        "wanted": list(layer.wanted) if layer else [],
        "editable": list(layer.editable) if layer else [],
        "parents": below,
        "children": [str(each) for each in above],
        "parent_changed": newer,
        "packed": _packed(found),
        "config": _config(found),
    }
    if tasks:
        from haienv.cluster import tasks_using

        document["used_by"] = tasks_using(found)
    if disk:
        from haienv.layers.gc import freed_bytes

        document["freed_bytes"] = freed_bytes(found.path) if found.layer_id else 0
    settings.answer(document, _document(document))
    if newer:
        settings.note(f"its parent has changed: `haienv upgrade {found.name}` updates it")
    return 0


def _parent_moved(found: Environment, parent: Environment | None) -> bool:
    if found.layer is None or not found.layer.parents or parent is None:
        return False
    return parent.layer_id != found.layer.parents[0].layer


def _packed(found: Environment) -> bool:
    from haienv.layers.packing import read_image

    return bool(found.layer_id) and read_image(found.path) is not None


def _config(found: Environment) -> dict[str, Any]:
    config = found.metadata.config
    return {
        "search_dirs": list(config.search_dirs),
        "bin_dirs": list(config.bin_dirs),
        "variables": dict(config.variables),
    }


def _document(facts: dict[str, Any]) -> str:
    visible = {**facts, **facts["config"], "size": size_text(facts["size_bytes"])}
    for key in ("config", "size_bytes"):
        del visible[key]
    return aligned([(key.replace("_", " "), value_text(v)) for key, v in visible.items() if v])


@click.command("which", cls=EnvCommand)
@_NAME
@click.argument("program", default="python")
@_USER
@click.option("--pinned", is_flag=True, help="The path in the layer, which does not change.")
@click.pass_obj
def which(settings: Settings, name: str, program: str, user: str | None, pinned: bool) -> int:
    """Print the path of the interpreter (for an IDE), or of a program."""
    here, found = find_environment(name, user)
    layer = found.usable
    top = found.path if pinned else found.directory / CURRENT_LINK
    for folder in (top, *(here.layer(p.owner, p.layer) for p in layer.parents)):
        path = folder / "bin" / program
        if "/" not in program and path.is_file():
            settings.answer({"path": str(path)}, str(path))
            return 0
    raise NotFound(f"{found} has no program {program!r}")


@click.command("freeze", cls=EnvCommand)
@_NAME
@_USER
@click.option("--own", is_flag=True, help="Without packages of parents.")
@click.pass_obj
def freeze(settings: Settings, name: str, user: str | None, own: bool) -> int:
    """Print packages as name==version, including those of parents."""
    _, found = find_environment(name, user)
    sites = found.sites[:1] if own else found.sites
    packages = dict(sorted(versions(sites).items()))
    settings.answer(packages, "\n".join(f"{name}=={version}" for name, version in packages.items()))
    return 0


@click.command("lock", cls=EnvCommand)
@_NAME
@_USER
@click.pass_obj
def lock(settings: Settings, name: str, user: str | None) -> int:
    """Print the lock of an environment, with hashes, for `haienv create --from`."""
    _, found = find_environment(name, user)
    layer = found.recorded_layer
    text = found.lock()
    settings.answer({"lock": text, "lock_hash": layer.lock_hash}, text.rstrip("\n"))
    return 0


@click.command("diff", cls=EnvCommand)
@click.argument("left", shell_complete=complete_names)
@click.argument("right", shell_complete=complete_names)
@click.pass_obj
def diff(settings: Settings, left: str, right: str) -> int:
    """Compare two environments by package. The exit code is 0 whether they differ or not."""
    before = versions(find_environment(left)[1].sites)
    after = versions(find_environment(right)[1].sites)
    include_broken = sorted({*before, *after})
    changed = [
        (n, before.get(n, ""), after.get(n, ""))
        for n in include_broken
        if before.get(n) != after.get(n)
    ]
    document = [{"name": n, "left": a, "right": b} for n, a, b in changed]
    settings.answer(document, aligned([("PACKAGE", left, right), *changed]) if changed else "")
    if not changed:
        settings.note("the same packages")
    return 0
