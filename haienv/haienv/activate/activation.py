"""The variables that an environment sets; the same for shells, `haienv run`, `set_env` and tasks."""

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
    """`path` and `search` come before what PATH and PYTHONPATH have; Jupyter looks below `jupyter`.

    `labels` are the files that all this was read from, with their texts; without one where there was none.
    """

    name: str
    owner: str
    lock_hash: str
    prefix: str
    path: tuple[str, ...]
    search: tuple[str, ...]
    variables: Mapping[str, str]
    prompt: str
    note: str = ""  # for who enters it
    metadata_files: tuple[tuple[str, str | None], ...] = ()
    jupyter: tuple[str, ...] = ()

    def lists(self) -> dict[str, tuple[str, ...]]:
        """Of directories, which come before those that are there."""
        found = {
            "PATH": self.path,
            "PYTHONPATH": self.search,
            "JUPYTER_PATH": tuple(f"{each}/share/jupyter" for each in self.jupyter),
            "JUPYTER_CONFIG_PATH": tuple(f"{each}/etc/jupyter" for each in self.jupyter),
        }
        return {name: prefixes for name, prefixes in found.items() if prefixes}

    def sets(self) -> dict[str, str]:
        """Every variable with a value of its own; lists are joined with what is there."""
        return {
            **self.variables,
            "HF_ENV_NAME": self.name,
            "HF_ENV_OWNER": self.owner,
            "HF_ENV_LOCK": self.lock_hash,
            "VIRTUAL_ENV": self.prefix,
        }

    def applied(self, environ: Mapping[str, str]) -> dict[str, str]:
        """An environment of a process with all of it."""
        joined = {"PATH": os.defpath, **environ, **self.sets()}
        for name, prefixes in self.lists().items():
            joined[name] = _joined(prefixes, joined.get(name, ""))
        joined.pop("PYTHONHOME", None)
        return joined


def activation(home: Home, environment: Environment, follow: bool = False) -> Activation:
    """What an environment sets. `follow`: through `current`, so that a shell sees what is installed later."""
    layer, home = environment.usable, home.at(environment.root)
    prefix = environment.directory / CURRENT_LINK if follow else environment.path
    parents = [
        read_environment(home, p.owner, p.name) for p in layer.parents
    ]  # as they are now, if they are
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
    """Jupyter itself looks beside its own Python only; none where nothing below brings anything."""
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
