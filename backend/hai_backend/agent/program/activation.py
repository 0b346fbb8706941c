"""Activates the environment that the server names; a broken one is a reason not to start.

A program must be able to say `import hai`, or `import hfai` as in HAI, so one whose environment has no such package
gets the agent's: behind all that the environment has, and nothing else of the agent's packages.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import hai
from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.program.preparation import CannotStart
from hai_backend.agent.program.reaper import Reaper
from hai_backend.agent.rank_dir import Identity, RankDir
from hai_backend.domain.environment import EnvironmentName
from hai_backend.environments import copies
from hai_backend.environments.activation import Activation, resolve_activation
from hai_backend.environments.copies import LayerRequest
from hai_backend.environments.records import BrokenEnvironment

_SDK = ("hai", "hfai")
"""Packages that programs import and every agent has, beside one another."""

_UNPACK = (sys.executable, "-I", "-B", "-m", "hai_backend.environments.unpack")
_MAX_MESSAGE_BYTES = 2000


async def activation(
    welcome: pb.AgentWelcome,
    directory: RankDir,
    identity: Identity,
    reaper: Reaper,
    say: Callable[[str], None],
) -> Activation | None:
    """None: the task names no environment, or goes on without. Raises CannotStart naming environment and node."""
    if not welcome.HasField("environment"):
        return None
    request = welcome.environment
    called = EnvironmentName(request.owner, request.name)
    try:
        active = await asyncio.to_thread(
            resolve_activation, Path(request.root), called, request.layer
        )
    except BrokenEnvironment as error:
        why = f"environment {called} cannot be activated on {identity.node}: {error}"
        if not request.fallback:
            raise CannotStart(why) from error
        say(f"{why}; going on without it, as env_fallback says")
        return None
    if request.copies:
        active = await copied(active, request, directory, reaper, say)
    missing = [name for name in _SDK if not active.has_package(name)]
    return _with_ours(active, missing, directory.path / "sdk") if missing else active


def _with_ours(active: Activation, missing: Sequence[str], directory_of_links: Path) -> Activation:
    """A directory with a link to each: what stands beside our packages is not for programs."""
    directory_of_links.mkdir(exist_ok=True)
    for name in missing:
        with suppress(FileExistsError):
            (directory_of_links / name).symlink_to(Path(hai.__file__).parent.parent / name)
    return replace(active, python_paths=(*active.python_paths, str(directory_of_links)))


async def copied(
    active: Activation,
    request: pb.AgentEnvironment,
    directory: RankDir,
    reaper: Reaper,
    say: Callable[[str], None],
) -> Activation:
    """The environment in this node's copies, or as it is."""
    try:
        images = await asyncio.to_thread(_images, active, Path(request.root))
        if not images:
            return active
        directory_of_links = await _lock_copies(images, request, directory, reaper, say)
    except (BrokenEnvironment, OSError) as error:
        say(f"environment {active.full_name} runs from shared storage: {error}")
        return active
    return active.relocate(Path(request.root), directory_of_links)


def _images(active: Activation, root: Path) -> list[LayerRequest]:
    """Empty if the layer was not packed. Raises BrokenEnvironment when only a part of the chain was packed."""
    chain = [layer.relative_to(root).parts for layer in active.layers]
    found = [(owner, copies.find_packed_layer(root, owner, layer)) for owner, _, layer in chain]
    if found[0][1] is None:
        return []
    if missing := [owner for owner, images in found if images is None]:
        raise BrokenEnvironment(
            f"it extends a layer of {missing[0]} that has no image (haienv pack)"
        )
    return [images for _, images in found if images is not None]


async def _lock_copies(
    images: list[LayerRequest],
    request: pb.AgentEnvironment,
    directory: RankDir,
    reaper: Reaper,
    say: Callable[[str], None],
) -> Path:
    """Where the copies are. Raises BrokenEnvironment."""
    directory_of_links = await asyncio.to_thread(
        copies.make_account_directory, Path(request.copies)
    )
    if await asyncio.to_thread(copies.lock_copies, directory_of_links, images) is None:
        size = sum(each.image.unpacked_bytes for each in images) / 1e6
        say(f"unpacking environment {request.name}[{request.owner}] here ({size:.0f} MB)")
        await _unpack(images, request, directory, reaper)
        if await asyncio.to_thread(copies.lock_copies, directory_of_links, images) is None:
            raise BrokenEnvironment(
                "its copy on this node went away again: there is too little room"
            )
    return directory_of_links


async def _unpack(
    images: list[LayerRequest], request: pb.AgentEnvironment, directory: RankDir, reaper: Reaper
) -> None:
    layers = [(each.owner, each.layer) for each in images]
    order = {
        "root": request.root,
        "place": request.copies,
        "limit": request.copies_bytes,
        "layers": layers,
    }
    with (directory.path / "unpacking.log").open("w+b") as output:
        child = reaper.spawn(
            (*_UNPACK, json.dumps(order)), output.fileno(), directory.path, os.environ
        )
        code = await child.ended
        output.seek(0)
        message = output.read(_MAX_MESSAGE_BYTES).decode("utf-8", "replace").strip().splitlines()
    if code != 0:
        raise BrokenEnvironment(
            message[-1] if message else f"unpacking its image ended with code {code}"
        )
