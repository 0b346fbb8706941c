"""`haienv export` and `haienv import`: archives of environments, and environments of HAI's haienv."""

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
    installer,
)
from haienv.cli.view import as_dict
from haienv.errors import EnvError, Refused, UsageError
from haienv.names import Reference, is_name, variable_fault
from haienv.store.layout import Home, home
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

    _, found = find_environment(name, user)
    if recipe:
        file.write_text(found.lock())
    else:
        archive.write_archive(found, file)
    settings.answer({"file": str(file), "size_bytes": file.stat().st_size}, str(file))
    return 0


@click.command("import", cls=EnvCommand)
@click.argument("file", type=FILE)
@click.argument("name", default="")
@index_options
@click.pass_obj
def import_(settings: Settings, /, file: str, name: str, **options: Any) -> int:
    """Create NAME from an archive of `haienv export`, or all environments of a venv.db of HAI."""
    from haienv.legacy_db import is_database

    here, path = home(), Path(file)
    uv = installer(here, options)
    if is_database(path):
        return _import_legacy_db(settings, here, uv, path)
    if not name:
        raise UsageError("a name is required", f"haienv import {file} NAME")
    made = _from_archive(here, uv, path, name)
    settings.answer(as_dict(made), str(made.path))
    return 0


def _from_archive(here: Home, uv: Uv, path: Path, name: str) -> Environment:
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
    made = operations.create(
        here, uv, name, _base(here, contents.layer), request, metadata, lambda _: None
    )
    assert made is not None
    return made


def _base(here: Home, layer: Layer) -> Base:
    from haienv.layers.base import empty_base, environment_base

    if layer.sites:
        raise Refused(
            f"it extends the Python of another machine: {layer.sites[0]}",
            "extend an environment instead",
        )
    if not layer.parents:
        return empty_base(layer.minor)
    nearest = layer.parents[0]
    parent = find_by_lock(here, nearest.lock_hash, Reference(nearest.name, nearest.owner))
    if parent is None:
        raise Refused(
            f"it extends {nearest.name}[{nearest.owner}], lock {nearest.lock_hash[:12]}, which is not here",
            f"import the parent first: `haienv export {nearest.name}` on the other machine",
        )
    return environment_base(parent)


def _import_legacy_db(settings: Settings, here: Home, uv: Uv, path: Path) -> int:
    from haienv import legacy_db

    outcomes = [_import_legacy(here, uv, row) for row in legacy_db.read_rows(path)]
    failed = [each for each in outcomes if each["error"]]
    text = "\n".join(f"{each['name']}: {each['error'] or each['path']}" for each in outcomes)
    settings.answer({"environments": outcomes}, text)
    settings.note(f"{len(outcomes) - len(failed)} of {len(outcomes)} environments are imported")
    return 1 if failed else 0


def _import_legacy(here: Home, uv: Uv, row: LegacyEnvironment) -> dict[str, str]:
    """Create an environment that extends the files of a legacy one, which stay in their directory."""
    from haienv import operations
    from haienv.layers.base import python_base
    from haienv.layers.build import BuildRequest

    try:
        if row.fault or not is_name(row.name):
            raise UsageError(row.fault or "its name is invalid")
        if read_environment(here, here.user, row.name):
            return {"name": row.name, "path": str(here.directory(here.user, row.name)), "error": ""}
        base = python_base(str(Path(row.path) / "bin" / "python"))
        metadata = EnvMetadata(description=f"from {row.path}", config=_legacy_config(row))
        made = operations.create(here, uv, row.name, base, BuildRequest(), metadata, lambda _: None)
        assert made is not None
        return {"name": row.name, "path": str(made.path), "error": ""}
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
