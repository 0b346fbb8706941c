"""Activates an environment for programs that an agent starts, without any shell.

The layer is resolved once, so a running program keeps it while its owner upgrades the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hai_backend.domain.environment import EnvironmentName
from hai_backend.environments.errors import BrokenEnvironment
from hai_backend.environments.open_directories import OpenDirectory, open_root
from hai_backend.environments.parse import Config, Layer, Parent
from hai_backend.environments.read import (
    LAYERS,
    current_layer,
    layer_directory,
    read_layer,
    read_lock,
    read_metadata,
)

_VERSIONED = re.compile(r"python([0-9]+\.[0-9]+)[a-z]*")
_JUPYTER = {"JUPYTER_PATH": "share/jupyter", "JUPYTER_CONFIG_PATH": "etc/jupyter"}
NAME, OWNER, LOCK = "HF_ENV_NAME", "HF_ENV_OWNER", "HF_ENV_LOCK"


@dataclass(frozen=True, slots=True)
class Activation:
    """The effect of an environment: paths that are prepended to path variables, and other variables."""

    full_name: EnvironmentName
    lock_hash: str
    layers: tuple[Path, ...]  # the environment's own, then its parents'
    paths: tuple[str, ...]
    python_paths: tuple[str, ...]
    variables: Mapping[str, str]
    jupyter: tuple[Path, ...] = ()  # directories in which Jupyter finds kernels and extensions

    def apply_to(self, base: Mapping[str, str]) -> dict[str, str]:
        """Returns the node's variables with the environment active."""
        merged = {**base, **self.variables, NAME: self.full_name.name, OWNER: self.full_name.owner}
        merged[LOCK], merged["VIRTUAL_ENV"] = self.lock_hash, str(self.layers[0])
        merged["PATH"] = join_paths((*self.paths, base.get("PATH", os.defpath)))
        merged.pop("PYTHONHOME", None)
        if python_path := join_paths((*self.python_paths, base.get("PYTHONPATH", ""))):
            merged["PYTHONPATH"] = python_path
        for name, part in _JUPYTER.items() if self.jupyter else ():
            merged[name] = join_paths(
                (*(str(p / part) for p in self.jupyter), merged.get(name, ""))
            )
        return merged

    def relocated(self, root: Path, layer_path: Path) -> Activation:
        """Returns the same activation with the layers below another directory."""
        layers = tuple(layer_path / layer.relative_to(root) for layer in self.layers)
        pairs = zip(self.layers, layers, strict=True)
        new_by_old = dict(pairs)
        bin_directories = {str(old / "bin"): str(new / "bin") for old, new in new_by_old.items()}
        return replace(
            self,
            layers=layers,
            paths=tuple(bin_directories.get(p, p) for p in self.paths),
            jupyter=tuple(new_by_old.get(p, p) for p in self.jupyter),
        )

    def has(self, package: str) -> bool:
        """Tells whether one of its layers contains a package."""
        return any(
            layer_path.joinpath(package).exists()
            for layer in self.layers
            for layer_path in layer.glob("lib/python*/site-packages")
        )


def join_paths(parts: Iterable[str]) -> str:
    """Joins a list of directories without empty ones, which would mean the current directory."""
    return os.pathsep.join(filter(None, parts))


def activate(root: Path, full_name: EnvironmentName, layer: str = "") -> Activation:
    """Resolves an environment, or this `layer` of it. Raises BrokenEnvironment with the reason."""
    try:
        with open_root(root) as root_directory:
            return _activate(
                root, root_directory, full_name, layer or current_layer(root_directory, full_name)
            )
    except OSError as error:
        layer_path = root / full_name.owner / full_name.name
        raise BrokenEnvironment(f"{layer_path} cannot be read: {error.strerror}") from error


def _activate(
    root: Path, root_directory: OpenDirectory, full_name: EnvironmentName, name: str
) -> Activation:
    with layer_directory(root_directory, full_name.owner, name) as layer_files:
        layer = read_layer(layer_files)
        read_lock(layer_files, layer.lock_hash)
    _require_platform(layer)
    chain = _layer_chain(full_name, name, layer)
    layer_paths = [_layer_path(root, parent) for parent in chain]
    configs = [
        _config(root_directory, chain[0]),
        *(_parent_config(root_directory, parent) for parent in chain[1:]),
    ]
    _require_python(layer_paths[0], layer)
    return Activation(
        full_name=full_name,
        lock_hash=layer.lock_hash,
        layers=tuple(layer_paths),
        paths=tuple(
            path
            for layer_path, config in zip(layer_paths, configs, strict=True)
            for path in (str(layer_path / "bin"), *config.bin_dirs)
        ),
        python_paths=tuple(path for config in configs for path in config.search_dirs),
        variables={n: v for config in reversed(configs) for n, v in config.variables},
        jupyter=tuple(_jupyter(layer_paths, layer.sites)),
    )


def _jupyter(layer_paths: Sequence[Path], sites: Iterable[str]) -> list[Path]:
    """Returns the directories for Jupyter, which searches beside its own Python only; none if no parent has any."""
    outside = (Path(os.path.normpath(f"{site}/../../..")) for site in sites)
    jupyter_paths = [
        p for p in (*layer_paths[1:], *outside) if any(map(os.path.isdir, _jupyter_directories(p)))
    ]
    return [layer_paths[0], *jupyter_paths] if jupyter_paths else []


def _jupyter_directories(prefix: Path) -> list[Path]:
    return [prefix / part for part in _JUPYTER.values()]


def _layer_chain(full_name: EnvironmentName, name: str, layer: Layer) -> list[Parent]:
    return [Parent(full_name, name, layer.lock_hash), *layer.parents]


def _layer_path(root: Path, parent: Parent) -> Path:
    layer_path = root / parent.full_name.owner / LAYERS / parent.layer
    if not os.access(layer_path, os.R_OK | os.X_OK):
        raise BrokenEnvironment(f"{layer_path}, which it extends, does not exist or cannot be read")
    return layer_path


def _config(root_directory: OpenDirectory, parent: Parent) -> Config:
    """Reads the configuration of an environment; empty if its metadata were deleted or cannot be read."""
    with suppress(OSError):
        return read_metadata(root_directory, parent.full_name).config
    return Config()


def _parent_config(root_directory: OpenDirectory, parent: Parent) -> Config:
    """Ignores a broken configuration of a parent, as haienv does."""
    with suppress(BrokenEnvironment):
        return _config(root_directory, parent)
    return Config()


def _require_platform(layer: Layer) -> None:
    here = os.uname().machine
    if layer.platform and not layer.platform.endswith(here):
        raise BrokenEnvironment(f"it is for {layer.platform}, but this node is {here}")


def _require_python(layer_path: Path, layer: Layer) -> None:
    if problem := python_problem(layer_path, layer.python_version):
        raise BrokenEnvironment(problem)


def python_problem(layer_path: Path, version: str) -> str:
    """Returns why the Python of a layer cannot run on this machine; empty if it can."""
    python = layer_path / "bin" / "python"
    target = os.path.realpath(python)
    if not os.access(python, os.X_OK):
        return f"{python} leads to {target}, which does not exist or cannot be executed"
    version_match = _VERSIONED.fullmatch(os.path.basename(target))
    if version_match and not f"{version}.".startswith(f"{version_match[1]}."):
        return f"it was made for Python {version}, but its Python here is {target}"
    return ""
