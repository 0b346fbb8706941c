"""Implements `haienv list`, `info`, `which`, `freeze`, `lock`, `diff`: read-only commands."""

from __future__ import annotations

from typing import Any

import click

from hai.client.text.formatting import size_text
from haienv.cli.common import EnvCommand, Settings, complete_names, find_environment
from haienv.cli.view import align_columns, environment_document, format_table, format_value
from haienv.errors import NotFound
from haienv.layers.installed import read_versions
from haienv.names import SYSTEM, check_name
from haienv.store.layout import CURRENT_LINK, Home
from haienv.store.registry import Environment, find_children, find_current_parent, list_environments

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

        caller, documents = list_remote(owner)
    else:
        home = Home.from_environ()
        caller = home.user
        documents = [environment_document(each) for each in list_environments(home, owner)]
    listed = [
        each
        for each in documents
        if include_broken or each["state"] == "READY" or each["owner"] == caller
    ]
    groups: dict[str, list[dict[str, Any]]] = {"system": [], "own": [], "others": []}
    for each in listed:
        groups[_group_of_owner(each["owner"], caller)].append(each)
    ordered = [each for group in groups.values() for each in group]
    if only_names and not settings.json:
        click.echo("".join(f"{_short_name(each, caller)}\n" for each in ordered), nl=False)
        return 0
    settings.print_result(groups, format_table(ordered) if ordered else "")
    if not ordered:
        settings.print_note(_empty_note(user, remote))
    if broken := [_short_name(each, caller) for each in listed if each["state"] == "BROKEN"]:
        hint = "haienv list --remote --json" if remote else f"haienv info {broken[0]}"
        settings.print_note(f"`{hint}` says why it is broken")
    if hidden := len(documents) - len(listed):
        settings.print_note(f"{hidden} broken environments of others are not shown (-a shows them)")
    return 0


def _empty_note(user: str | None, remote: bool) -> str:
    if user:
        return f"{user} has no environments that you can see{' on the cluster' if remote else ''}"
    if remote:
        return "the cluster has no environments that you can see: haienv push NAME"
    return "no environments yet: haienv create NAME"


def _group_of_owner(owner: str, caller: str) -> str:
    if owner == caller:
        return "own"
    return "system" if owner == SYSTEM else "others"


def _short_name(document: dict[str, Any], caller: str) -> str:
    name, owner = document["name"], document["owner"]
    return str(name) if owner == caller else f"{name}[{owner}]"


@click.command("info", cls=EnvCommand)
@_NAME
@_USER
@click.option("--tasks", is_flag=True, help="Also list unfinished tasks that use it.")
@click.option("--disk", is_flag=True, help="Also show how many bytes removing it would free.")
@click.pass_obj
def info(settings: Settings, name: str, user: str | None, tasks: bool, disk: bool) -> int:
    """Show details of an environment: parents, children, size, whether its parent changed."""
    home, environment = find_environment(name, user)
    layer = environment.layer
    layer_ids = frozenset({environment.layer_id} - {""})
    parent_changed = _has_parent_changed(environment, find_current_parent(home, environment))
    document = {
        **environment_document(environment),
        "interpreter": layer.interpreter if layer else "",
        "platform": layer.platform if layer else "",
        "cuda_driver": layer.cuda if layer else "",
        "wanted": list(layer.wanted) if layer else [],
        "editable": list(layer.editable) if layer else [],
        "parents": [f"{p.name}[{p.owner}]" for p in layer.parents] if layer else [],
        "children": list(map(str, find_children(home, environment.owner, layer_ids))),
        "parent_changed": parent_changed,
        "packed": _is_packed(environment),
        "config": _config_document(environment),
    }
    if tasks:
        from haienv.cluster import tasks_using

        document["used_by"] = tasks_using(environment)
    if disk:
        from haienv.layers.gc import count_freed_bytes

        document["freed_bytes"] = count_freed_bytes(environment.path) if environment.layer_id else 0
    settings.print_result(document, _format_document(document))
    if parent_changed:
        settings.print_note(
            f"its parent has changed: `haienv upgrade {environment.name}` updates it"
        )
    return 0


def _has_parent_changed(environment: Environment, parent: Environment | None) -> bool:
    if environment.layer is None or not environment.layer.parents or parent is None:
        return False
    return parent.layer_id != environment.layer.parents[0].layer


def _is_packed(environment: Environment) -> bool:
    from haienv.layers.packing import read_image

    return bool(environment.layer_id) and read_image(environment.path) is not None


def _config_document(environment: Environment) -> dict[str, Any]:
    config = environment.metadata.config
    return {
        "search_dirs": list(config.search_dirs),
        "bin_dirs": list(config.bin_dirs),
        "variables": dict(config.variables),
    }


def _format_document(document: dict[str, Any]) -> str:
    fields = {**document, **document["config"], "size": size_text(document["size_bytes"])}
    for key in ("config", "size_bytes"):
        del fields[key]
    return align_columns(
        [(key.replace("_", " "), format_value(v)) for key, v in fields.items() if v]
    )


@click.command("which", cls=EnvCommand)
@_NAME
@click.argument("program", default="python")
@_USER
@click.option("--pinned", is_flag=True, help="The path in the layer, which does not change.")
@click.pass_obj
def which(settings: Settings, name: str, program: str, user: str | None, pinned: bool) -> int:
    """Print the path of the interpreter (for an IDE), or of a program."""
    home, environment = find_environment(name, user)
    layer = environment.usable_layer
    top = environment.path if pinned else environment.directory / CURRENT_LINK
    for folder in (top, *(home.layer(p.owner, p.layer) for p in layer.parents)):
        path = folder / "bin" / program
        if "/" not in program and path.is_file():
            settings.print_result({"path": str(path)}, str(path))
            return 0
    raise NotFound(f"{environment} has no program {program!r}")


@click.command("freeze", cls=EnvCommand)
@_NAME
@_USER
@click.option("--own", "without_parents", is_flag=True, help="Without packages of parents.")
@click.pass_obj
def freeze(settings: Settings, name: str, user: str | None, without_parents: bool) -> int:
    """Print packages as name==version, including those of parents."""
    _, environment = find_environment(name, user)
    sites = environment.sites[:1] if without_parents else environment.sites
    packages = dict(sorted(read_versions(sites).items()))
    settings.print_result(
        packages, "\n".join(f"{name}=={version}" for name, version in packages.items())
    )
    return 0


@click.command("lock", cls=EnvCommand)
@_NAME
@_USER
@click.pass_obj
def lock(settings: Settings, name: str, user: str | None) -> int:
    """Print the lock of an environment, with hashes, for `haienv create --from`."""
    _, environment = find_environment(name, user)
    layer = environment.recorded_layer
    text = environment.lock()
    settings.print_result({"lock": text, "lock_hash": layer.lock_hash}, text.rstrip("\n"))
    return 0


@click.command("diff", cls=EnvCommand)
@click.argument("left", shell_complete=complete_names)
@click.argument("right", shell_complete=complete_names)
@click.pass_obj
def diff(settings: Settings, left: str, right: str) -> int:
    """Compare two environments by package. The exit code is 0 whether they differ or not."""
    before = read_versions(find_environment(left)[1].sites)
    after = read_versions(find_environment(right)[1].sites)
    differing = sorted(name for name, _ in before.items() ^ after.items())
    rows = [(name, before.get(name, ""), after.get(name, "")) for name in dict.fromkeys(differing)]
    document = [{"name": n, "left": a, "right": b} for n, a, b in rows]
    settings.print_result(
        document, align_columns([("PACKAGE", left, right), *rows]) if rows else ""
    )
    if not rows:
        settings.print_note("the same packages")
    return 0
