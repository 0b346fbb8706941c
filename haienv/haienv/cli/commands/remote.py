"""Implements `haienv push`, `pull` and `build --remote`: environments on the cluster."""

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
    make_installer,
    source_option,
)
from haienv.cli.view import environment_document
from haienv.errors import Refused, UsageError
from haienv.names import check_name, parse_reference
from haienv.store.layout import Home
from haienv.store.records import VISIBILITIES, Config, EnvMetadata
from haienv.store.requirements_lock import Lock

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

    _, environment = find_environment(name)
    target = check_name(options["target"] or environment.name)
    wheels = [
        path for directory in options["wheels"] for path in sorted(Path(directory).glob("*.whl"))
    ]
    metadata = _with_visibility(environment.metadata, options)
    remote = cluster.push(
        environment, target, metadata, wheels, options["replace"], settings.print_note
    )
    return _print_remote(settings, remote)


def _with_visibility(metadata: EnvMetadata, options: dict[str, Any]) -> EnvMetadata:
    visibility = options["visibility"] or metadata.visibility
    return replace(metadata, visibility=visibility, group=options["group"] or metadata.group)


def _print_remote(settings: Settings, remote: Remote) -> int:
    document = {
        "name": remote.name,
        "owner": remote.owner,
        "path": remote.path,
        "python": remote.python_version,
        "parent": remote.parent,
        "lock_hash": remote.lock_hash,
    }
    settings.print_result(document, f"{remote.name}[{remote.owner}]")
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

    home, reference = Home.from_environ(), parse_reference(source)
    uv = make_installer(home, options)
    recipe = cluster.fetch_recipe(reference.name, reference.owner)
    base = _find_base(home, recipe.lock, recipe.description.parent, parent)
    wanted = tuple(recipe.description.wanted) or tuple(pin.text for pin in recipe.lock.pins)
    metadata = EnvMetadata(config=_parse_config(recipe.description.config))
    request = BuildRequest(wanted, exact=recipe.lock.pins)
    environment = operations.create(
        home, uv, name or reference.name, base, request, metadata, lambda _: None
    )
    assert environment is not None
    settings.print_result(environment_document(environment), str(environment.path))
    return 0


def _parse_config(text: str) -> Config:
    from hai.toml import loads
    from haienv.store.records import parse_config

    try:
        return parse_config(loads(text))
    except ValueError as error:
        raise UsageError(f"the configuration of the environment is invalid: {error}") from error


def _find_base(home: Home, lock: Lock, parent: str, chosen: str) -> Base:
    """Return the local base for a lock of the cluster. Raise Refused if its parent is missing here."""
    from haienv.layers.base import make_empty_base, make_environment_base
    from haienv.store.registry import find_by_lock, find_by_reference

    if not lock.parent:
        return make_empty_base(lock.python)
    if chosen:
        return make_environment_base(find_by_reference(home, parse_reference(chosen)))
    environment = find_by_lock(home, lock.parent, parse_reference(parent))
    if environment is None:
        raise Refused(
            f"it extends {parent}, which is not here", f"pull it first: haienv pull '{parent}'"
        )
    return make_environment_base(environment)


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
    from haienv.layers.base import find_running_minor
    from haienv.requirements.files import collect_requirements
    from haienv.requirements.requirement_set import RequirementSet

    uv = make_installer(Home.from_environ(), options)
    requested = collect_requirements(
        RequirementSet(options["requirements"]), options["sources"], ()
    )
    if requested.editable:
        raise UsageError(
            "projects in place cannot be built on the cluster: their files are on this machine"
        )
    parent = parse_reference(options["parent"]) if options["parent"] else None
    chain = cluster.fetch_lock_chain(parent.name, parent.owner) if parent else []
    python = (
        chain[0].python if chain else options["python"] or requested.python or find_running_minor()
    )
    lock = requested.lock or _resolve_lock(uv, requested.requirements, python, chain)
    metadata = _with_visibility(EnvMetadata(), options)
    parents = [(parent.name, parent.owner, chain[0].hash)] if parent else []
    built = cluster.build(
        check_name(name),
        lock,
        requested.requirements,
        metadata,
        parents,
        {},
        options["replace"],
        settings.print_note,
    )
    return _print_remote(settings, built)


def _resolve_lock(uv: Uv, requirements: tuple[str, ...], python: str, chain: list[Lock]) -> Lock:
    """Resolve requirements to a lock for the cluster, with the packages of the chain as constraints."""
    from haienv.layers.resolve import resolve_for_version
    from haienv.store.transaction import build_directory

    provided = {pin.name: pin.version for lock in reversed(chain) for pin in lock.pins}
    with build_directory(uv.home) as work:
        resolved = resolve_for_version(uv, requirements, python, provided, work)
    pins = tuple(pin for pin in resolved if provided.get(pin.name) != pin.version)
    return Lock(python, pins, chain[0].hash if chain else "")
