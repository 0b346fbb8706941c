"""What activating an environment sets: for programs that an agent starts, without any shell.

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
from hai_backend.environments.errors import Broken
from hai_backend.environments.open_directories import Folder, opened
from hai_backend.environments.parse import Config, Layer, Parent
from hai_backend.environments.read import (
    LAYERS,
    current_layer,
    layer_folder,
    read_label,
    read_layer,
    read_lock,
)

_VERSIONED = re.compile(r"python([0-9]+\.[0-9]+)[a-z]*")
_JUPYTER = {"JUPYTER_PATH": "share/jupyter", "JUPYTER_CONFIG_PATH": "etc/jupyter"}
NAME, OWNER, LOCK = "HF_ENV_NAME", "HF_ENV_OWNER", "HF_ENV_LOCK"


@dataclass(frozen=True, slots=True)
class Activation:
    """Of one environment: what is put before lists of directories, and variables."""

    called: EnvironmentName
    lock_hash: str
    layers: tuple[Path, ...]  # its own, then its parents'
    paths: tuple[str, ...]
    python_paths: tuple[str, ...]
    variables: Mapping[str, str]
    jupyter: tuple[Path, ...] = ()  # below them, Jupyter finds kernels and extensions

    def over(self, ours: Mapping[str, str]) -> dict[str, str]:
        """The variables of the node, with the environment active."""
        made = {**ours, **self.variables, NAME: self.called.name, OWNER: self.called.owner}
        made[LOCK], made["VIRTUAL_ENV"] = self.lock_hash, str(self.layers[0])
        made["PATH"] = joined((*self.paths, ours.get("PATH", os.defpath)))
        made.pop("PYTHONHOME", None)
        if python_path := joined((*self.python_paths, ours.get("PYTHONPATH", ""))):
            made["PYTHONPATH"] = python_path
        for name, part in _JUPYTER.items() if self.jupyter else ():
            made[name] = joined((*(str(p / part) for p in self.jupyter), made.get(name, "")))
        return made

    def moved(self, root: Path, place: Path) -> Activation:
        """The same with layers below another directory."""
        layers = tuple(place / layer.relative_to(root) for layer in self.layers)
        both = zip(self.layers, layers, strict=True)
        news = dict(both)
        bins = {str(old / "bin"): str(new / "bin") for old, new in news.items()}
        return replace(
            self,
            layers=layers,
            paths=tuple(bins.get(p, p) for p in self.paths),
            jupyter=tuple(news.get(p, p) for p in self.jupyter),
        )

    def has(self, package: str) -> bool:
        """Whether one of its layers brings a package."""
        return any(
            place.joinpath(package).exists()
            for layer in self.layers
            for place in layer.glob("lib/python*/site-packages")
        )


def joined(parts: Iterable[str]) -> str:
    """A list of directories, without empty ones: those would be wherever the program is."""
    return os.pathsep.join(filter(None, parts))


def activate(root: Path, called: EnvironmentName, layer: str = "") -> Activation:
    """Resolve an environment, or this `layer` of it. Raises Broken with the reason."""
    try:
        with opened(root) as folder:
            return _activated(root, folder, called, layer or current_layer(folder, called))
    except OSError as error:
        place = root / called.owner / called.name
        raise Broken(f"{place} cannot be read: {error.strerror}") from error


def _activated(root: Path, folder: Folder, called: EnvironmentName, name: str) -> Activation:
    with layer_folder(folder, called.owner, name) as of_layer:
        layer = read_layer(of_layer)
        read_lock(of_layer, layer.lock_hash)
    _require_platform(layer)
    chain = _chain(called, name, layer)
    places = [_place(root, link) for link in chain]
    configs = [_config(folder, chain[0]), *(_config_below(folder, link) for link in chain[1:])]
    _require_python(places[0], layer)
    return Activation(
        called=called,
        lock_hash=layer.lock_hash,
        layers=tuple(places),
        paths=tuple(
            path
            for place, config in zip(places, configs, strict=True)
            for path in (str(place / "bin"), *config.bin_dirs)
        ),
        python_paths=tuple(path for config in configs for path in config.search_dirs),
        variables={n: v for config in reversed(configs) for n, v in config.variables},
        jupyter=tuple(_jupyter(places, layer.sites)),
    )


def _jupyter(places: Sequence[Path], sites: Iterable[str]) -> list[Path]:
    """Jupyter itself looks beside its own Python only; none where nothing below brings anything."""
    outside = (Path(os.path.normpath(f"{site}/../../..")) for site in sites)
    below = [p for p in (*places[1:], *outside) if any(map(os.path.isdir, _of_jupyter(p)))]
    return [places[0], *below] if below else []


def _of_jupyter(prefix: Path) -> list[Path]:
    return [prefix / part for part in _JUPYTER.values()]


def _chain(called: EnvironmentName, name: str, layer: Layer) -> list[Parent]:
    return [Parent(called, name, layer.lock_hash), *layer.parents]


def _place(root: Path, link: Parent) -> Path:
    place = root / link.called.owner / LAYERS / link.layer
    if not os.access(place, os.R_OK | os.X_OK):
        raise Broken(f"{place}, which it extends, is not there, or hidden")
    return place


def _config(folder: Folder, link: Parent) -> Config:
    """A label may be gone, or be nobody's business; its layer goes on."""
    with suppress(OSError):
        return read_label(folder, link.called).config
    return Config()


def _config_below(folder: Folder, link: Parent) -> Config:
    """What another wrote into theirs stops nobody's task, as in haienv."""
    with suppress(Broken):
        return _config(folder, link)
    return Config()


def _require_platform(layer: Layer) -> None:
    here = os.uname().machine
    if layer.platform and not layer.platform.endswith(here):
        raise Broken(f"it is for {layer.platform}, and this node is {here}")


def _require_python(place: Path, layer: Layer) -> None:
    if fault := python_fault(place, layer.python_version):
        raise Broken(fault)


def python_fault(place: Path, version: str) -> str:
    """Why the Python of a layer cannot be run on this machine; empty: it can."""
    python = place / "bin" / "python"
    where = os.path.realpath(python)
    if not os.access(python, os.X_OK):
        return f"{python} leads to {where}, which is not there or cannot be executed"
    named = _VERSIONED.fullmatch(os.path.basename(where))
    if named and not f"{version}.".startswith(f"{named[1]}."):
        return f"it was made for Python {version}, and its Python here is {where}"
    return ""
