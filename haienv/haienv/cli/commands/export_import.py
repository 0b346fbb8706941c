"""Implements `haienv export` and `haienv import`: archives of environments, and the environments of HAI's haienv."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haienv.cli.common import (
    FILE,
    EnvCommand,
    Settings,
    complete_names,
    find_environment,
    index_options,
    make_installer,
)
from haienv.cli.view import environment_document
from haienv.errors import EnvError, Refused, UsageError
from haienv.names import Reference, is_name, variable_fault
from haienv.store.layout import Home
from haienv.store.records import Config, EnvMetadata, Layer, path_fault, value_fault
from haienv.store.registry import Environment, find_by_lock, read_environment

if TYPE_CHECKING:
    from haienv.backends.uv import Uv
    from haienv.layers.base import Base
    from haienv.legacy_db import LegacyEnvironment


@click.command("export", cls=EnvCommand)
@click.argument("name", shell_complete=complete_names)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-u", "--user", help="Owner of the environment.")
@click.option("--recipe", is_flag=True, help="Only the lock; an import then needs an index.")
@click.pass_obj
def export(settings: Settings, name: str, file: Path, user: str | None, recipe: bool) -> int:
    """Write an environment to FILE (.tar, .tar.gz, .tar.xz), without its parents."""
    from haienv import archive

    _, environment = find_environment(name, user)
    if recipe:
        file.write_text(environment.lock())
    else:
        archive.write_archive(environment, file)
    settings.print_result({"file": str(file), "size_bytes": file.stat().st_size}, str(file))
    return 0


@click.command("import", cls=EnvCommand)
@click.argument("file", type=FILE)
@click.argument("name", default="")
@index_options
@click.pass_obj
def import_(settings: Settings, /, file: str, name: str, **options: Any) -> int:
    """Create NAME from an archive of `haienv export`, or all environments of a venv.db of HAI."""
    from haienv.legacy_db import is_database

    home, path = Home.from_environ(), Path(file)
    uv = make_installer(home, options)
    if is_database(path):
        return _import_legacy_db(settings, home, uv, path)
    if not name:
        raise UsageError("a name is required", f"haienv import {file} NAME")
    environment = _import_archive(home, uv, path, name)
    settings.print_result(environment_document(environment), str(environment.path))
    return 0


def _import_archive(home: Home, uv: Uv, path: Path, name: str) -> Environment:
    """Create an environment from an archive."""
    from haienv import archive, operations
    from haienv.layers.build import BuildRequest
    from haienv.layers.machine import require_runnable

    contents = archive.read_archive(path)
    require_runnable(contents.layer)
    request = BuildRequest(
        contents.layer.wanted,
        exact=contents.lock.pins,
        populate=lambda *targets: archive.extract_files(path, *targets),
    )
    config = replace(contents.metadata.config, hooks=())  # commands of other users never run here
    metadata = EnvMetadata(
        description=contents.metadata.description, tags=contents.metadata.tags, config=config
    )
    environment = operations.create(
        home, uv, name, _find_base(home, contents.layer), request, metadata, lambda _: None
    )
    assert environment is not None
    return environment


def _find_base(home: Home, layer: Layer) -> Base:
    """Return the local base of an imported layer. Raise Refused if its parent is missing."""
    from haienv.layers.base import make_empty_base, make_environment_base

    if layer.sites:
        raise Refused(
            f"it extends the Python of another machine: {layer.sites[0]}",
            "extend an environment instead",
        )
    if not layer.parents:
        return make_empty_base(layer.minor_version)
    nearest = layer.parents[0]
    parent = find_by_lock(home, nearest.lock_hash, Reference(nearest.name, nearest.owner))
    if parent is None:
        raise Refused(
            f"it extends {nearest.name}[{nearest.owner}], lock {nearest.lock_hash[:12]}, which is not here",
            f"import the parent first: `haienv export {nearest.name}` on the other machine",
        )
    return make_environment_base(parent)


def _import_legacy_db(settings: Settings, home: Home, uv: Uv, path: Path) -> int:
    from haienv import legacy_db

    outcomes = [_import_legacy(home, uv, row) for row in legacy_db.read_rows(path)]
    failed = [each for each in outcomes if each["error"]]
    text = "\n".join(f"{each['name']}: {each['error'] or each['path']}" for each in outcomes)
    settings.print_result({"environments": outcomes}, text)
    settings.print_note(
        f"{len(outcomes) - len(failed)} of {len(outcomes)} environments are imported"
    )
    return 1 if failed else 0


def _import_legacy(home: Home, uv: Uv, row: LegacyEnvironment) -> dict[str, str]:
    """Create an environment that extends the files of one of HAI, which stay in their directory. Return the outcome."""
    from haienv import operations
    from haienv.layers.base import make_python_base
    from haienv.layers.build import BuildRequest

    try:
        if row.fault or not is_name(row.name):
            raise UsageError(row.fault or "its name is invalid")
        if read_environment(home, home.user, row.name):
            return {"name": row.name, "path": str(home.directory(home.user, row.name)), "error": ""}
        base = make_python_base(str(Path(row.path) / "bin" / "python"))
        metadata = EnvMetadata(description=f"from {row.path}", config=_legacy_config(row))
        environment = operations.create(
            home, uv, row.name, base, BuildRequest(), metadata, lambda _: None
        )
        assert environment is not None
        return {"name": row.name, "path": str(environment.path), "error": ""}
    except EnvError as error:
        return {"name": row.name, "path": "", "error": error.message}


def _legacy_config(row: LegacyEnvironment) -> Config:
    pairs = [pair.partition("=") for pair in row.variables]
    valid_variables = {k: v for k, _, v in pairs if not (variable_fault(k) or value_fault(v))}
    return Config(
        tuple(d for d in row.search_dirs if not path_fault(d)),
        tuple(d for d in row.bin_dirs if not path_fault(d)),
        valid_variables,
    )
