"""Finds the layers that must be retained, because programs run in them or environments of others extend them.

`haienv` and the server query them before they remove an environment or collect garbage. The owner of a layer may see
neither use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hai_backend.api.environments.environments import Environments
from hai_backend.domain.environment import Environment, parse_reference
from hai_backend.domain.errors import Conflict
from hai_backend.domain.task import Task
from hai_backend.environments import read
from hai_backend.environments.open_directories import OpenDirectory, open_root
from hai_backend.environments.records import BrokenEnvironment


@dataclass(frozen=True, slots=True)
class LayerUse:
    """The layer that programs of a task use. If `layer` is empty, it may be any layer with this lock."""

    owner: str
    layer: str  # empty after a restart of the server
    lock_hash: str


async def layers_in_use(environments: Environments, owner: str) -> set[str]:
    """Return the layers of one user that are in use."""
    all_environments = list((await environments.list_all()).values())
    uses = [
        use for task in environments.tasks() if (use := _use_of_task(task, environments.pinned))
    ]
    return await asyncio.to_thread(
        _find_layers_in_use, environments.root, owner, uses, all_environments
    )


async def require_unused(environments: Environments, removed: Environment) -> None:
    """Raise Conflict if programs run in a layer that would be deleted with an environment."""
    all_environments = (await environments.list_all()).values()
    if any(
        e.layer == removed.layer
        for e in all_environments
        if e.owner == removed.owner and e != removed
    ):
        return
    if removed.layer in await layers_in_use(environments, removed.owner):
        raise Conflict(
            f"tasks use the layer of {removed.full_name}; wait for their end, or stop them",
            reason="ENVIRONMENT_IN_USE",
        )


def _use_of_task(task: Task, pinned: Mapping[int, tuple[int, str]]) -> LayerUse | None:
    """Return the layer that a task uses, or None if it does not run. A waiting task resolves its layer at its start."""
    name, owner = parse_reference(task.spec.options.py_venv) or ("", "")
    if not name or task.run is None or task.run.ended_at is not None:
        return None
    run, layer = pinned.get(task.id, (0, ""))
    pinned_layer = layer if run == task.run.number else ""
    return LayerUse(owner or task.user, pinned_layer, task.run.environment_lock)


def _find_layers_in_use(
    root: Path, owner: str, uses: list[LayerUse], all_environments: list[Environment]
) -> set[str]:
    in_use: set[str] = set()
    with suppress(OSError), open_root(root) as directory:
        for use in uses:
            for layer in _layers_of(directory, use):
                in_use |= {layer} if use.owner == owner else set()
                in_use |= _parent_layers(directory, use.owner, layer, owner)
        for environment in all_environments:
            if environment.parent and environment.layer:
                in_use |= _parent_layers(directory, environment.owner, environment.layer, owner)
    return in_use


def _layers_of(root: OpenDirectory, use: LayerUse) -> Iterable[str]:
    return [use.layer] if use.layer else list(_layers_with_lock(root, use.owner, use.lock_hash))


def _layers_with_lock(root: OpenDirectory, owner: str, lock_hash: str) -> Iterator[str]:
    """Yield the layers with a lock. Layers with the same lock may differ in their parents."""
    with (
        suppress(OSError),
        root.open_directory(owner) as home,
        home.open_directory(read.LAYERS) as layers,
    ):
        for name in layers.list_names(read.MAX_PER_USER):
            with suppress(BrokenEnvironment, OSError), layers.open_directory(name) as directory:
                if lock_hash and read.read_layer(directory).lock_hash == lock_hash:
                    yield name


def _parent_layers(root: OpenDirectory, owner: str, layer: str, parent_owner: str) -> set[str]:
    """Return the parents of a layer that belong to `parent_owner`. Return none if the layer cannot be read."""
    with (
        suppress(BrokenEnvironment, OSError),
        read.open_layer(root, owner, layer) as directory,
    ):
        parents = read.read_layer(directory).parents
        return {p.layer for p in parents if p.full_name.owner == parent_owner}
    return set()
