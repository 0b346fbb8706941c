"""Implements `haienv config show|append|remove|set|clear|edit`: the settings of an environment besides its packages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, cast

import click

from hai.toml import loads
from haienv.cli.common import (
    EnvGroup,
    Settings,
    complete_names,
    find_environment,
    find_own_environment,
)
from haienv.cli.view import align_columns, format_value
from haienv.errors import NotFound, UsageError
from haienv.names import variable_fault
from haienv.store.layout import Home
from haienv.store.records import (
    VISIBILITIES,
    Config,
    EnvMetadata,
    MalformedRecord,
    hook_fault,
    parse_config,
    path_fault,
    to_toml,
    value_fault,
)
from haienv.store.registry import Environment

FIELDS = {"extra-search-dir": "search_dirs", "extra-search-bin-dir": "bin_dirs", "hook": "hooks"}
VARIABLES = "extra-environment"
TEXTS = ("description", "deprecated", "group")
LISTS = (*FIELDS, VARIABLES, "tags")
KEYS = (*LISTS, *TEXTS, "visibility")

_NAME = click.argument("name", default=".", shell_complete=complete_names)
_KEY = click.argument("key", type=click.Choice(KEYS))
_LIST = click.argument("key", type=click.Choice(LISTS))


@click.group("config", cls=EnvGroup)
def config() -> None:
    """Show or change search directories, variables, hooks, visibility, description.

    A hook is a command that runs in the environment, without a shell, after a command of yours
    has changed its packages: create, install, uninstall, upgrade, roll back.

    \b
    Examples:
      haienv config append mine extra-environment OMP_NUM_THREADS=4
      haienv config set mine visibility group --group vision
      haienv config append mine hook 'python -m ipykernel install --user --name mine'
      haienv config show base -u platform
    """


@config.command("show")
@_NAME
@click.option("-u", "--user", help="Owner of the environment.")
@click.pass_obj
def show(settings: Settings, name: str, user: str | None) -> int:
    """Show all settings."""
    _, environment = find_environment(name, user)
    return _print_config(settings, environment.metadata)


@config.command("set")
@click.argument("name", shell_complete=complete_names)
@_KEY
@click.argument("values", nargs=-1, required=True)
@click.option("--group", help="The group, for visibility group.")
@click.pass_obj
def set_(
    settings: Settings, name: str, key: str, values: tuple[str, ...], group: str | None
) -> int:
    """Replace the values of KEY by VALUES."""

    def change(metadata: EnvMetadata) -> EnvMetadata:
        metadata = replace(metadata, group=group) if group is not None else metadata
        if key in LISTS:
            return _with_entries(metadata, key, _parse_entries(key, values))
        if len(values) != 1:
            raise UsageError(f"{key} takes one value")
        return _with_text(metadata, key, values[0])

    return _configure(settings, name, change)


@config.command("append")
@click.argument("name", shell_complete=complete_names)
@_LIST
@click.argument("values", nargs=-1, required=True)
@click.pass_obj
def append(settings: Settings, name: str, key: str, values: tuple[str, ...]) -> int:
    """Add VALUES to KEY; an existing variable gets the new value."""

    def change(metadata: EnvMetadata) -> EnvMetadata:
        return _with_entries(
            metadata, key, {**_entries(metadata, key), **_parse_entries(key, values)}
        )

    return _configure(settings, name, change)


@config.command("remove")
@click.argument("name", shell_complete=complete_names)
@_LIST
@click.argument("values", nargs=-1, required=True)
@click.pass_obj
def remove(settings: Settings, name: str, key: str, values: tuple[str, ...]) -> int:
    """Remove VALUES from KEY; variables are named without their values."""

    def change(metadata: EnvMetadata) -> EnvMetadata:
        entries = dict(_entries(metadata, key))
        for value in values:
            if entries.pop(value, None) is None:
                raise NotFound(
                    f"{key} has no {value!r}", f"it has: {', '.join(entries) or 'nothing'}"
                )
        return _with_entries(metadata, key, entries)

    return _configure(settings, name, change)


@config.command("clear")
@click.argument("name", shell_complete=complete_names)
@_KEY
@click.pass_obj
def clear(settings: Settings, name: str, key: str) -> int:
    """Clear KEY; visibility becomes private."""

    def change(metadata: EnvMetadata) -> EnvMetadata:
        if key in LISTS:
            return _with_entries(metadata, key, {})
        return _with_text(metadata, key, "private" if key == "visibility" else "")

    return _configure(settings, name, change)


@config.command("edit")
@click.argument("name", default=".", shell_complete=complete_names)
@click.pass_obj
def edit(settings: Settings, name: str) -> int:
    """Edit directories and variables in $EDITOR; if anything is invalid, nothing is changed."""
    if not sys.stdin.isatty():
        raise UsageError("config edit needs a terminal", "scripts use set, append and remove")
    _, environment = find_own_environment(name)
    text = click.edit(to_toml(environment.metadata.config), extension=".toml")
    if text is None:
        return _print_config(settings, environment.metadata)
    edited = _parse_edited(environment, text)
    return _configure(settings, name, lambda metadata: replace(metadata, config=edited))


def _parse_edited(environment: Environment, text: str) -> Config:
    try:
        table = loads(text)
        if unknown := table.keys() - {field.name for field in fields(Config)}:
            raise MalformedRecord(f"unknown keys: {', '.join(sorted(unknown))}")
        return parse_config(table)
    except ValueError as error:
        raise UsageError(f"{environment} was not changed: {error}") from error


def _configure(settings: Settings, name: str, change: Callable[[EnvMetadata], EnvMetadata]) -> int:
    """Change the metadata of an environment, and print its configuration."""
    from haienv import operations

    home, environment = find_own_environment(name)
    after = operations.configure(home, environment, change)
    if environment.metadata.visibility == "private" != after.metadata.visibility and after.is_ready:
        from haienv.layers.bytecode import compile_modules

        settings.print_note("compiling modules, since other users cannot write bytecode")
        compile_modules(after.path / "bin" / "python", after.sites[0])
    if environment.metadata.visibility != after.metadata.visibility != "public":
        _note_dependents(settings, home, after)
    return _print_config(settings, after.metadata)


def _note_dependents(settings: Settings, home: Home, environment: Environment) -> None:
    from haienv.store.reverse_dependencies import find_dependents

    if users := find_dependents(home).get(environment.layer_id):
        settings.print_note(f"its packages stay visible: {', '.join(users)} extended them")


def _print_config(settings: Settings, metadata: EnvMetadata) -> int:
    document: dict[str, Any] = {key: getattr(metadata, key) for key in ("visibility", *TEXTS)}
    document |= {key: list(_entries(metadata, key)) for key in (*FIELDS, "tags")}
    document[VARIABLES] = dict(metadata.config.variables)
    rows = [(key, format_value(value, " ")) for key, value in document.items() if value]
    settings.print_result(document, align_columns(rows))
    return 0


def _entries(metadata: EnvMetadata, key: str) -> Mapping[str, str]:
    """Return the entries of a list as keys, so that each occurs once. Only variables have values."""
    if key == VARIABLES:
        return metadata.config.variables
    values = metadata.tags if key == "tags" else getattr(metadata.config, FIELDS[key])
    return dict.fromkeys(values, "")


def _with_entries(metadata: EnvMetadata, key: str, values: Mapping[str, str]) -> EnvMetadata:
    if key == "tags":
        return replace(metadata, tags=tuple(values))
    change: dict[str, Any] = (
        {"variables": dict(values)} if key == VARIABLES else {FIELDS[key]: tuple(values)}
    )
    return replace(metadata, config=replace(metadata.config, **change))


def _parse_entries(key: str, values: tuple[str, ...]) -> dict[str, str]:
    """Parse values for a list. Raise UsageError, which lists all invalid values."""
    pairs = [value.partition("=") if key == VARIABLES else (value, "=", "") for value in values]
    faults = [f"{name!r} has no value: write K=V" for name, equals, _ in pairs if not equals]
    fault_functions = {VARIABLES: variable_fault, "tags": _tag_fault, "hook": hook_fault}
    check = fault_functions.get(key, path_fault)
    faults += [f for name, _, value in pairs if (f := check(name) or value_fault(value))]
    if faults:
        raise UsageError("; ".join(faults))
    return {name: value for name, _, value in pairs}


def _tag_fault(tag: str) -> str:
    return "" if tag.isprintable() and tag else f"{tag!r} is not a valid tag"


def _with_text(metadata: EnvMetadata, key: str, value: str) -> EnvMetadata:
    """Return the metadata with another text or visibility. Raise UsageError if the value is invalid."""
    if not value.isprintable():
        raise UsageError(f"{key} has unprintable characters")
    if key != "visibility":
        return replace(metadata, **cast("dict[str, Any]", {key: value}))
    if value not in VISIBILITIES:
        raise UsageError(f"visibility must be one of {', '.join(VISIBILITIES)}")
    return replace(metadata, visibility=value)
