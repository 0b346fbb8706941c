"""Computes the variables that an environment sets in shells, `haienv run`, `set_env` and hooks."""

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
    """The changes that an active environment makes.

    `path` and `search` are prepended to PATH and PYTHONPATH, and directories below `jupyter` to Jupyter's paths.
    `note` is printed on activation. `metadata_files` are the files that were read, with their texts; None for missing
    ones.
    """

    name: str
    owner: str
    lock_hash: str
    prefix: str
    path: tuple[str, ...]
    search: tuple[str, ...]
    variables: Mapping[str, str]
    prompt: str
    note: str = ""
    metadata_files: tuple[tuple[str, str | None], ...] = ()
    jupyter: tuple[str, ...] = ()

    def path_lists(self) -> dict[str, tuple[str, ...]]:
        """Return the directories to prepend to each path variable."""
        lists = {
            "PATH": self.path,
            "PYTHONPATH": self.search,
            "JUPYTER_PATH": tuple(f"{each}/share/jupyter" for each in self.jupyter),
            "JUPYTER_CONFIG_PATH": tuple(f"{each}/etc/jupyter" for each in self.jupyter),
        }
        return {name: prefixes for name, prefixes in lists.items() if prefixes}

    def replaced_variables(self) -> dict[str, str]:
        """Return the variables that get a new value, unlike path variables."""
        return {
            **self.variables,
            "HF_ENV_NAME": self.name,
            "HF_ENV_OWNER": self.owner,
            "HF_ENV_LOCK": self.lock_hash,
            "VIRTUAL_ENV": self.prefix,
        }

    def apply_to(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return a copy of `environ`, the variables of a process, with the environment active."""
        variables = {"PATH": os.defpath, **environ, **self.replaced_variables()}
        for name, prefixes in self.path_lists().items():
            variables[name] = _prepend(prefixes, variables.get(name, ""))
        variables.pop("PYTHONHOME", None)
        return variables


def compute_activation(home: Home, environment: Environment, follow: bool = False) -> Activation:
    """Compute the changes of an environment. With `follow`, shells see later changes: paths lead through `current`."""
    layer, home = environment.usable_layer, home.at(environment.root)
    prefix = environment.directory / CURRENT_LINK if follow else environment.path
    # The current metadata of the parents counts, if they still exist.
    parents = [read_environment(home, p.owner, p.name) for p in layer.parents]
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
        path=tuple(_program_paths(zip(prefixes, configs, strict=True))),
        search=tuple(each for config in configs for each in config.search_dirs),
        variables=variables,
        prompt=_format_prompt(environment),
        note=_deprecation_note(environment),
        metadata_files=tuple(_metadata_files(home, environment, parents)),
        jupyter=tuple(map(str, _jupyter_prefixes(prefixes, layer.sites))),
    )


def _metadata_files(
    home: Home, environment: Environment, parents: Iterable[Environment | None]
) -> Iterable[tuple[str, str | None]]:
    layer = environment.usable_layer
    names = [(environment.owner, environment.name), *((p.owner, p.name) for p in layer.parents)]
    for (owner, name), existing in zip(names, (environment, *parents), strict=True):
        yield str(home.directory(owner, name) / METADATA_FILE), existing.text if existing else None


def _program_paths(chain: Iterable[tuple[Path, Config]]) -> Iterable[str]:
    for prefix, config in chain:
        yield str(prefix / "bin")
        yield from config.bin_dirs


def _jupyter_prefixes(prefixes: Sequence[Path], sites: Iterable[str]) -> list[Path]:
    """Return the prefixes with files of Jupyter, which searches only beside its Python; empty if no parent has any."""
    external = (Path(os.path.normpath(f"{site}/../../..")) for site in sites)
    inherited = [each for each in (*prefixes[1:], *external) if _has_jupyter(each)]
    return [prefixes[0], *inherited] if inherited else []


def _has_jupyter(prefix: Path) -> bool:
    return any(os.path.isdir(prefix / part / "jupyter") for part in ("share", "etc"))


def _prepend(first: tuple[str, ...], existing: str) -> str:
    return ":".join([*first, *([existing] if existing else [])])


def _format_prompt(environment: Environment) -> str:
    layer = environment.layer
    parent = f"({layer.parents[0].name}) " if layer and layer.parents else ""
    return f"[{environment.name}] {parent}"


def _deprecation_note(environment: Environment) -> str:
    reason = environment.metadata.deprecated
    return f"haienv: {environment} is deprecated: {reason}" if reason else ""
