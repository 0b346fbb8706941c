"""`haienv push`, `pull` and `build --remote`: environments on the cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haienv.cli.common import (
    EnvCommand,
    Settings,
    complete_names,
    find_environment,
    index_options,
    installer,
    source_option,
)
from haienv.cli.view import as_dict
from haienv.errors import Refused, UsageError
from haienv.names import check_name, parse_reference
from haienv.store.layout import Home, home
from haienv.store.lock_file import Lock
from haienv.store.records import VISIBILITIES, EnvMetadata

if TYPE_CHECKING:
    from hai.v1.environment_pb2 import Environment as Remote
    from haienv.backends.uv import Uv
    from haienv.layers.base import Base

_REPLACE = click.option("--replace", is_flag=True, help="Replace an environment of that name.")
_VISIBILITY = click.option(
    "--visibility", type=click.Choice(VISIBILITIES), help="Who can see the environment."
)
_GROUP = click.option("--group", default="", help="A user group, for --visibility group.")


@click.command("push", cls=EnvCommand)
@click.argument("name", shell_complete=complete_names)
@click.option("--as", "target", default="", help="Name on the cluster; default: the local name.")
@click.option(
    "--wheels",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help="Upload needed wheels of this directory.",
)
@_VISIBILITY
@_GROUP
@_REPLACE
@click.pass_obj
def push(settings: Settings, /, name: str, **options: Any) -> int:
    """Build a local environment on the cluster, from its lock.

    Packages come from the cluster's indexes; only the lock and wheels that no index has are
    uploaded. Its parent must exist there, with the same lock.
    """
    from haienv import cluster

    _, found = find_environment(name)
    target = check_name(options["target"] or found.name)
    wheels = [
        path for directory in options["wheels"] for path in sorted(Path(directory).glob("*.whl"))
    ]
    metadata = _label(found.metadata, options)
    made = cluster.push(found, target, metadata, wheels, options["replace"], settings.note)
    return _print_made(settings, made)


def _label(metadata: EnvMetadata, options: dict[str, Any]) -> EnvMetadata:
    visibility = options["visibility"] or metadata.visibility
    return replace(metadata, visibility=visibility, group=options["group"] or metadata.group)


def _print_made(settings: Settings, made: Remote) -> int:
    document = {
        "name": made.name,
        "owner": made.owner,
        "path": made.path,
        "python": made.python_version,
        "parent": made.parent,
        "lock_hash": made.lock_hash,
    }
    settings.answer(document, f"{made.name}[{made.owner}]")
    return 0


@click.command("pull", cls=EnvCommand)
@click.argument("source", metavar="NAME[USER]")
@click.argument("name", default="")
@click.option(
    "--extend", "parent", default="", help="Local environment to extend instead of its parent."
)
@index_options
@click.pass_obj
def pull(settings: Settings, /, source: str, name: str, parent: str, **options: Any) -> int:
    """Build an environment of the cluster here as NAME, from its lock."""
    from haienv import cluster, operations
    from haienv.layers.build import BuildRequest

    here, meant = home(), parse_reference(source)
    uv = installer(here, options)
    fetched = cluster.fetch_recipe(meant.name, meant.owner)
    base = _base(here, fetched.lock, fetched.description.parent, parent)
    wanted = tuple(fetched.description.wanted) or tuple(pin.text for pin in fetched.lock.pins)
    metadata = EnvMetadata(config=_config(fetched.description.config))
    request = BuildRequest(wanted, exact=fetched.lock.pins)
    made = operations.create(here, uv, name or meant.name, base, request, metadata, lambda _: None)
    assert made is not None
    settings.answer(as_dict(made), str(made.path))
    return 0


def _config(text: str) -> Any:
    from hai.toml import loads
    from haienv.store.records import parse_config

    try:
        return parse_config(loads(text))
    except ValueError as error:
        raise UsageError(f"the configuration of the environment is invalid: {error}") from error


def _base(here: Home, lock: Lock, parent: str, chosen: str) -> Base:
    from haienv.layers.base import empty_base, environment_base
    from haienv.store.registry import find, find_by_lock

    if not lock.parent:
        return empty_base(lock.python)
    if chosen:
        return environment_base(find(here, parse_reference(chosen)))
    found = find_by_lock(here, lock.parent, parse_reference(parent))
    if found is None:
        raise Refused(
            f"it extends {parent}, which is not here", f"pull it first: haienv pull '{parent}'"
        )
    return environment_base(found)


@click.command("build", cls=EnvCommand)
@click.argument("name")
@click.argument("requirements", nargs=-1)
@click.option("--remote", is_flag=True, required=True, help="Required: build on the cluster.")
@source_option
@click.option("-p", "--py", "python", default="", help="Minor version of Python, as in 3.11.")
@click.option(
    "--extend", "parent", default="", metavar="NAME[USER]", help="An environment of the cluster."
)
@_VISIBILITY
@_GROUP
@_REPLACE
@index_options
@click.pass_obj
def build(settings: Settings, /, name: str, remote: bool, **options: Any) -> int:
    """Build an environment on the cluster only.

    Versions are resolved here, for the cluster's Python; a lock is used as it is.
    """
    from haienv import cluster
    from haienv.layers.base import running_minor
    from haienv.requirements.files import collect_requirements
    from haienv.requirements.requirement_set import RequirementSet

    uv = installer(home(), options)
    requested = collect_requirements(
        RequirementSet(options["requirements"]), options["sources"], ()
    )
    if requested.editable:
        raise UsageError(
            "projects in place cannot be built on the cluster: their files are on this machine"
        )
    parent = parse_reference(options["parent"]) if options["parent"] else None
    chain = cluster.locks_of_chain(parent.name, parent.owner) if parent else []
    python = chain[0].python if chain else options["python"] or requested.python or running_minor()
    lock = requested.lock or _locked(uv, requested.requirements, python, chain)
    metadata = _label(EnvMetadata(), options)
    parents = [(parent.name, parent.owner, chain[0].hash)] if parent else []
    made = cluster.build(
        check_name(name),
        lock,
        requested.requirements,
        metadata,
        parents,
        {},
        options["replace"],
        settings.note,
    )
    return _print_made(settings, made)


def _locked(uv: Uv, requirements: tuple[str, ...], python: str, chain: list[Lock]) -> Lock:
    from haienv.layers.resolve import resolve_for
    from haienv.store.transaction import build_directory

    below = {pin.name: pin.version for lock in reversed(chain) for pin in lock.pins}
    with build_directory(uv.home) as work:
        found = resolve_for(uv, requirements, python, below, work)
    pins = tuple(pin for pin in found if below.get(pin.name) != pin.version)
    return Lock(python, pins, chain[0].hash if chain else "")
