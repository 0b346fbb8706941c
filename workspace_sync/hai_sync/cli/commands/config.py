"""The commands `haiworkspace config list|get|set|unset`: defaults of options in one workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from hai.client.errors import UsageError
from hai_sync.cli.options import CONFLICT, JOBS, LINKS, MODE, RATE, common_options, wants_json
from hai_sync.cli.reporting import print_event
from hai_sync.core.links import Links
from hai_sync.core.reconcile_options import Mode, Policy
from hai_sync.settings import read_settings, save_setting
from hai_sync.workspace_dir import CONFIG, find_workspace


@dataclass(frozen=True, slots=True)
class Setting:
    """One key. `type` is the type of the option with this name."""

    type: click.ParamType[Any]
    default: str
    about: str


KEYS: Mapping[str, Setting] = {
    "conflict": Setting(CONFLICT, Policy.REFUSE.value, "what is done when both sides have changed"),
    "mode": Setting(MODE, Mode.SYNC.value, "the direction in which `watch start` syncs"),
    "bwlimit": Setting(RATE, "0", "bytes per second, such as 2M; 0 means no limit"),
    "jobs": Setting(JOBS, "as cores", "number of files that are read at the same time"),
    "links": Setting(
        LINKS, Links.AUTO.value, "what is done with links that lead out of the workspace"
    ),
    "strict": Setting(click.BOOL, "no", "whether a sync refuses to skip such links"),
}


def value_of(name: str, value: str) -> Any:
    """Return a value, converted as by its option. Raises UsageError."""
    try:
        return KEYS[name].type.convert(value, None, None)
    except click.BadParameter as error:
        raise UsageError(
            f"{name}: {error.message}",
            hint=f"`haiworkspace config set {name} VALUE` writes it into .hfai/{CONFIG}",
        ) from None


@click.group()
def config() -> None:
    """Set defaults of options for this workspace."""


@config.command("list")
@common_options
def list_all(**options: Any) -> int:
    """List all keys with their values and meanings."""
    found = read_settings(find_workspace())
    if wants_json(options):
        print_event("config", **{name: found.get(name, key.default) for name, key in KEYS.items()})
        return 0
    for name, key in KEYS.items():
        value = found.get(name, f"{key.default} (default)")
        click.echo(f"{name:9} {value:18} {key.about}")
    return 0


@config.command()
@click.argument("key", type=click.Choice(list(KEYS)))
@common_options
def get(key: str, **options: Any) -> int:
    """Print one value."""
    click.echo(read_settings(find_workspace()).get(key, KEYS[key].default))
    return 0


@config.command("set")
@click.argument("key", type=click.Choice(list(KEYS)))
@click.argument("value")
@common_options
def set_one(key: str, value: str, **options: Any) -> int:
    """Set one value. A running daemon keeps the values with which it was started."""
    value_of(key, value)
    save_setting(find_workspace(), key, value)
    return 0


@config.command()
@click.argument("key", type=click.Choice(list(KEYS)))
@common_options
def unset(key: str, **options: Any) -> int:
    """Return one key to its default."""
    save_setting(find_workspace(), key, None)
    return 0
