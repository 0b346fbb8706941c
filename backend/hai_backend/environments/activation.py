"""Resolves environments to the variables of programs that an agent starts. No shell takes part.

The layer is resolved once, so a running program keeps it while the owner upgrades the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hai_backend.domain.environment import EnvironmentName
from hai_backend.environments.open_directories import OpenDirectory, open_root
from hai_backend.environments.read import (
    LAYERS,
    open_layer,
    read_current_layer,
    read_layer,
    read_lock,
    read_metadata,
)
from hai_backend.environments.records import BrokenEnvironment, Config, Layer, Parent

_VERSIONED = re.compile(r"python([0-9]+\.[0-9]+)[a-z]*")
_JUPYTER = {"JUPYTER_PATH": "share/jupyter", "JUPYTER_CONFIG_PATH": "etc/jupyter"}
NAME, OWNER, LOCK = "HF_ENV_NAME", "HF_ENV_OWNER", "HF_ENV_LOCK"


@dataclass(frozen=True, slots=True)
class Activation:
    """The effect of an active environment: directories to prepend to path variables, and other variables."""

    full_name: EnvironmentName
    lock_hash: str
    layers: tuple[Path, ...]  # the layer of the environment, then those of its parents
    paths: tuple[str, ...]
    python_paths: tuple[str, ...]
    variables: Mapping[str, str]
    jupyter: tuple[Path, ...] = ()  # directories in which Jupyter finds kernels and extensions

    def apply_to(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a program whose variables without the environment are `base`."""
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

    def relocate(self, root: Path, layer_path: Path) -> Activation:
        """Return the activation with the layers below `layer_path` instead of `root`."""
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

    def has_package(self, package: str) -> bool:
        """Return whether a layer contains a package."""
        return any(
            layer_path.joinpath(package).exists()
            for layer in self.layers
            for layer_path in layer.glob("lib/python*/site-packages")
        )


def join_paths(parts: Iterable[str]) -> str:
    """Join directories to a path list, without empty ones, which would mean the current directory."""
    return os.pathsep.join(filter(None, parts))


def resolve_activation(root: Path, full_name: EnvironmentName, layer: str = "") -> Activation:
    """Resolve an environment with its current layer, or with `layer`. Raise BrokenEnvironment with the reason."""
    try:
        with open_root(root) as root_directory:
            return _resolve_layer(
                root,
                root_directory,
                full_name,
                layer or read_current_layer(root_directory, full_name),
            )
    except OSError as error:
        layer_path = root / full_name.owner / full_name.name
        raise BrokenEnvironment(f"{layer_path} cannot be read: {error.strerror}") from error


def _resolve_layer(
    root: Path, root_directory: OpenDirectory, full_name: EnvironmentName, name: str
) -> Activation:
    """Resolve one layer of an environment. Raise BrokenEnvironment, or OSError."""
    with open_layer(root_directory, full_name.owner, name) as layer_files:
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
        jupyter=tuple(_jupyter_prefixes(layer_paths, layer.sites)),
    )


def _jupyter_prefixes(layer_paths: Sequence[Path], sites: Iterable[str]) -> list[Path]:
    """Return the prefixes with files of Jupyter, which searches only beside its Python; empty if no parent has any."""
    external = (Path(os.path.normpath(f"{site}/../../..")) for site in sites)
    jupyter_paths = [
        p for p in (*layer_paths[1:], *external) if any(map(os.path.isdir, _jupyter_directories(p)))
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
    """Read the configuration of an environment; empty if its metadata was deleted or cannot be read."""
    with suppress(OSError):
        return read_metadata(root_directory, parent.full_name).config
    return Config()


def _parent_config(root_directory: OpenDirectory, parent: Parent) -> Config:
    """Read the configuration of a parent; empty if it is broken, as in haienv."""
    with suppress(BrokenEnvironment):
        return _config(root_directory, parent)
    return Config()


def _require_platform(layer: Layer) -> None:
    machine = os.uname().machine
    if layer.platform and not layer.platform.endswith(machine):
        raise BrokenEnvironment(f"it is for {layer.platform}, but this node is {machine}")


def _require_python(layer_path: Path, layer: Layer) -> None:
    if problem := find_python_problem(layer_path, layer.python_version):
        raise BrokenEnvironment(problem)


def find_python_problem(layer_path: Path, version: str) -> str:
    """Return why the Python of a layer cannot run on this machine; empty if it can."""
    python = layer_path / "bin" / "python"
    target = os.path.realpath(python)
    if not os.access(python, os.X_OK):
        return f"{python} leads to {target}, which does not exist or cannot be executed"
    version_match = _VERSIONED.fullmatch(os.path.basename(target))
    if version_match and not f"{version}.".startswith(f"{version_match[1]}."):
        return f"it was made for Python {version}, but its Python here is {target}"
    return ""
