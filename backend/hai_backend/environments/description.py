"""What an environment is made of, so that the same one can be made elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tomli_w

from hai_backend.domain.environment import Environment
from hai_backend.domain.errors import Conflict
from hai_backend.environments.errors import Broken
from hai_backend.environments.open_directories import opened
from hai_backend.environments.parse import Config
from hai_backend.environments.read import layer_folder, read_label, read_layer, read_lock


@dataclass(frozen=True, slots=True)
class Description:
    """`config` is TOML, as [config] of env.toml."""

    lock: str
    config: str
    wanted: tuple[str, ...]
    parent_lock_hash: str


def describe(root: Path, environment: Environment) -> Description:
    """Raises Conflict when its files cannot be read, or are not what they were."""
    called = environment.called
    try:
        with opened(root) as folder:
            config = read_label(folder, called).config
            with layer_folder(folder, called.owner, environment.layer) as of_layer:
                layer = read_layer(of_layer)
                lock = read_lock(of_layer, layer.lock_hash)
    except (Broken, OSError) as error:
        raise Conflict(f"{called} cannot be read: {error}", reason="NOT_READABLE") from error
    parent = layer.parents[0].lock_hash if layer.parents else ""
    return Description(lock, _written(config), layer.wanted, parent)


def _written(config: Config) -> str:
    return tomli_w.dumps(
        {
            "search_dirs": list(config.search_dirs),
            "bin_dirs": list(config.bin_dirs),
            "variables": dict(config.variables),
        }
    )
