"""The variables that an environment sets, for shells, `haienv run`, `set_env` and tasks alike."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from haienv.store.layout import CURRENT_LINK, METADATA_FILE, Home
from haienv.store.records import Config
from haienv.store.registry import Environment, read_environment


@dataclass(frozen=True, slots=True)
class Activation:
    """What activating an environment changes.

    `path` and `search` are prepended to PATH and PYTHONPATH, directories below `jupyter` to Jupyter's paths.
    `metadata_files` are the files that were read, with their texts; None for missing ones.
    """

    name: str
    owner: str
    lock_hash: str
    prefix: str
    path: tuple[str, ...]
    search: tuple[str, ...]
    variables: Mapping[str, str]
    prompt: str
    note: str = ""  # is printed on activation
    metadata_files: tuple[tuple[str, str | None], ...] = ()
    jupyter: tuple[str, ...] = ()

    def lists(self) -> dict[str, tuple[str, ...]]:
        """Path lists whose directories are prepended to the existing ones."""
        found = {
            "PATH": self.path,
            "PYTHONPATH": self.search,
            "JUPYTER_PATH": tuple(f"{each}/share/jupyter" for each in self.jupyter),
            "JUPYTER_CONFIG_PATH": tuple(f"{each}/etc/jupyter" for each in self.jupyter),
        }
        return {name: prefixes for name, prefixes in found.items() if prefixes}

    def sets(self) -> dict[str, str]:
        """Variables that are replaced, unlike the path lists."""
        return {
            **self.variables,
            "HF_ENV_NAME": self.name,
            "HF_ENV_OWNER": self.owner,
            "HF_ENV_LOCK": self.lock_hash,
            "VIRTUAL_ENV": self.prefix,
        }

    def applied(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables of a process after activation."""
        joined = {"PATH": os.defpath, **environ, **self.sets()}
        for name, prefixes in self.lists().items():
            joined[name] = _joined(prefixes, joined.get(name, ""))
        joined.pop("PYTHONHOME", None)
        return joined


def activation(home: Home, environment: Environment, follow: bool = False) -> Activation:
    """What activating an environment sets; with `follow` through `current`, so that a shell sees later changes."""
    layer, home = environment.usable, home.at(environment.root)
    prefix = environment.directory / CURRENT_LINK if follow else environment.path
    parents = [
        read_environment(home, p.owner, p.name) for p in layer.parents
    ]  # their current metadata, if they still exist
    prefixes = [prefix, *(home.layer(p.owner, p.layer) for p in layer.parents)]
    configs = [each.metadata.config if each else Config() for each in (environment, *parents)]
    variables: dict[str, str] = {}
    for config in reversed(configs):
        variables |= config.variables
    return Activation(
        name=environment.name,
        owner=environment.owner,
        lock_hash=layer.lock_hash,
        prefix=str(prefix),
        path=tuple(_paths(zip(prefixes, configs, strict=True))),
        search=tuple(each for config in configs for each in config.search_dirs),
        variables=variables,
        prompt=_prompt(environment),
        note=_note(environment),
        metadata_files=tuple(_labels(home, environment, parents)),
        jupyter=tuple(map(str, _jupyter(prefixes, layer.sites))),
    )


def _labels(
    home: Home, environment: Environment, parents: Iterable[Environment | None]
) -> Iterable[tuple[str, str | None]]:
    layer = environment.usable
    named = [(environment.owner, environment.name), *((p.owner, p.name) for p in layer.parents)]
    for (owner, name), found in zip(named, (environment, *parents), strict=True):
        yield str(home.directory(owner, name) / METADATA_FILE), found.text if found else None


def _paths(chain: Iterable[tuple[Path, Config]]) -> Iterable[str]:
    for prefix, config in chain:
        yield str(prefix / "bin")
        yield from config.bin_dirs


def _jupyter(prefixes: Sequence[Path], sites: Iterable[str]) -> list[Path]:
    """Prefixes with Jupyter files; Jupyter itself finds only those of its Python. Empty if no parent has any."""
    outside = (Path(os.path.normpath(f"{site}/../../..")) for site in sites)
    below = [each for each in (*prefixes[1:], *outside) if _has_jupyter(each)]
    return [prefixes[0], *below] if below else []


def _has_jupyter(prefix: Path) -> bool:
    return any(os.path.isdir(prefix / part / "jupyter") for part in ("share", "etc"))


def _joined(first: tuple[str, ...], existing: str) -> str:
    return ":".join([*first, *([existing] if existing else [])])


def _prompt(environment: Environment) -> str:
    layer = environment.layer
    parent = f"({layer.parents[0].name}) " if layer and layer.parents else ""
    return f"[{environment.name}] {parent}"


def _note(environment: Environment) -> str:
    instead = environment.metadata.deprecated
    return f"haienv: {environment} is deprecated: {instead}" if instead else ""
