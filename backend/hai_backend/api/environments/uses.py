"""Which layers must stay: programs run in them, or environments stand on them. Their owner may see neither.

Whoever removes an environment or collects garbage asks this first: `haienv` from outside, and the server itself.
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
from hai_backend.environments.errors import Broken
from hai_backend.environments.open_directories import Folder, opened


@dataclass(frozen=True, slots=True)
class Use:
    """What programs of a task run in: a layer, or (empty: it is not known here any more) one with this lock."""

    owner: str
    layer: str
    lock_hash: str


async def layers_in_use(environments: Environments, owner: str) -> set[str]:
    """Layers of one user."""
    known = list((await environments.known()).values())
    uses = [use for task in environments.tasks() if (use := _use(task, environments.pinned))]
    return await asyncio.to_thread(_in_use, environments.root, owner, uses, known)


async def require_unused(environments: Environments, going: Environment) -> None:
    """Raises Conflict when programs run in a layer that would go with an environment."""
    known = (await environments.known()).values()
    if any(e.layer == going.layer for e in known if e.owner == going.owner and e != going):
        return
    if going.layer in await layers_in_use(environments, going.owner):
        raise Conflict(
            f"programs of tasks run in what {going.called} is; wait for their end, or stop them",
            reason="ENVIRONMENT_IN_USE",
        )


def _use(task: Task, pinned: Mapping[int, tuple[int, str]]) -> Use | None:
    """None: nothing runs. A task that waits takes what its environment is when it begins."""
    name, owner = parse_reference(task.spec.options.py_venv) or ("", "")
    if not name or task.run is None or task.run.ended_at is not None:
        return None
    run, layer = pinned.get(task.id, (0, ""))
    told = layer if run == task.run.number else ""
    return Use(owner or task.user, told, task.run.environment_lock)


def _in_use(root: Path, owner: str, uses: list[Use], known: list[Environment]) -> set[str]:
    found: set[str] = set()
    with suppress(OSError), opened(root) as folder:
        for use in uses:
            for layer in _layers_of(folder, use):
                found |= {layer} if use.owner == owner else set()
                found |= _below(folder, use.owner, layer, owner)
        for each in known:
            if each.parent and each.layer:
                found |= _below(folder, each.owner, each.layer, owner)
    return found


def _layers_of(root: Folder, use: Use) -> Iterable[str]:
    return [use.layer] if use.layer else list(_with_lock(root, use.owner, use.lock_hash))


def _with_lock(root: Folder, owner: str, lock_hash: str) -> Iterator[str]:
    """Several may have one: they stand on different ground."""
    with suppress(OSError), root.folder(owner) as home, home.folder(read.LAYERS) as layers:
        for name in layers.names(read.MOST_OF_ONE):
            with suppress(Broken, OSError), layers.folder(name) as folder:
                if lock_hash and read.read_layer(folder).lock_hash == lock_hash:
                    yield name


def _below(root: Folder, owner: str, layer: str, wanted: str) -> set[str]:
    """Layers of `wanted` that a layer stands on; nothing of one that cannot be read."""
    with suppress(Broken, OSError), read.layer_folder(root, owner, layer) as folder:
        parents = read.read_layer(folder).parents
        return {p.layer for p in parents if p.called.owner == wanted}
    return set()
