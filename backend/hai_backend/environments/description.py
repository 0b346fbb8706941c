"""Describes an environment, so that haienv can build the same one on another machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tomli_w

from hai_backend.domain.environment import Environment
from hai_backend.domain.errors import Conflict
from hai_backend.environments.open_directories import open_root
from hai_backend.environments.read import open_layer, read_layer, read_lock, read_metadata
from hai_backend.environments.records import BrokenEnvironment, Config


@dataclass(frozen=True, slots=True)
class Description:
    """The parts from which an environment can be built. `config` is TOML, as the table [config] in env.toml."""

    lock: str
    config: str
    requested: tuple[str, ...]
    parent_lock_hash: str


def describe(root: Path, environment: Environment) -> Description:
    """Describe an environment. Raise Conflict when its files cannot be read or have changed."""
    full_name = environment.full_name
    try:
        with open_root(root) as root_directory:
            config = read_metadata(root_directory, full_name).config
            with open_layer(root_directory, full_name.owner, environment.layer) as layer_files:
                layer = read_layer(layer_files)
                lock = read_lock(layer_files, layer.lock_hash)
    except (BrokenEnvironment, OSError) as error:
        raise Conflict(f"{full_name} cannot be read: {error}", reason="NOT_READABLE") from error
    parent = layer.parents[0].lock_hash if layer.parents else ""
    return Description(lock, _config_to_toml(config), layer.requested, parent)


def _config_to_toml(config: Config) -> str:
    return tomli_w.dumps(
        {
            "search_dirs": list(config.search_dirs),
            "bin_dirs": list(config.bin_dirs),
            "variables": dict(config.variables),
        }
    )
