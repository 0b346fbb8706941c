"""Activates the environment that the server requests.

If the environment is broken, the program does not start, unless the task allows a start without it.

Every program can import the packages `hai` and `hfai` (the name in HAI). If its environment lacks one of them, the
program uses that of the agent. It is found after the packages of the environment. Other packages of the agent are not
visible to the program.
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
"""Packages for programs, which stand in one directory of the agent's installation."""

_UNPACK = (sys.executable, "-I", "-B", "-m", "hai_backend.environments.unpack")
_MAX_MESSAGE_BYTES = 2000


async def activate_environment(
    welcome: pb.AgentWelcome,
    directory: RankDir,
    identity: Identity,
    reaper: Reaper,
    write_notice: Callable[[str], None],
) -> Activation | None:
    """Return the active environment; None if the task has none, or runs without it.

    Raises CannotStart if the environment is broken and the task requires it.
    """
    if not welcome.HasField("environment"):
        return None
    request = welcome.environment
    name = EnvironmentName(request.owner, request.name)
    try:
        active = await asyncio.to_thread(
            resolve_activation, Path(request.root), name, request.layer
        )
    except BrokenEnvironment as error:
        why = f"environment {name} cannot be activated on {identity.node}: {error}"
        if not request.fallback:
            raise CannotStart(why) from error
        write_notice(f"{why}; going on without it, as env_fallback says")
        return None
    if request.copies:
        active = await _use_local_copies(active, request, directory, reaper, write_notice)
    missing = [package for package in _SDK if not active.has_package(package)]
    return _add_sdk(active, missing, directory.path / "sdk") if missing else active


def _add_sdk(active: Activation, packages: Sequence[str], link_directory: Path) -> Activation:
    """Add a directory with links to `packages` of the agent, so that its other packages are not visible."""
    link_directory.mkdir(exist_ok=True)
    for name in packages:
        with suppress(FileExistsError):
            (link_directory / name).symlink_to(Path(hai.__file__).parent.parent / name)
    return replace(active, python_paths=(*active.python_paths, str(link_directory)))


async def _use_local_copies(
    active: Activation,
    request: pb.AgentEnvironment,
    directory: RankDir,
    reaper: Reaper,
    write_notice: Callable[[str], None],
) -> Activation:
    """Return the environment with the paths of its copies on this node, or unchanged if they cannot be used."""
    try:
        images = await asyncio.to_thread(_find_images, active, Path(request.root))
        if not images:
            return active
        link_directory = await _lock_copies(images, request, directory, reaper, write_notice)
    except (BrokenEnvironment, OSError) as error:
        write_notice(f"environment {active.full_name} runs from shared storage: {error}")
        return active
    return active.relocate(Path(request.root), link_directory)


def _find_images(active: Activation, root: Path) -> list[LayerRequest]:
    """Return the images of all layers; an empty list if the top layer has no image.

    Raises BrokenEnvironment if another layer has none.
    """
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
    write_notice: Callable[[str], None],
) -> Path:
    """Unpack missing copies, lock all copies, and return their directory.

    Raises BrokenEnvironment if they cannot be unpacked or are removed again.
    """
    link_directory = await asyncio.to_thread(copies.make_account_directory, Path(request.copies))
    if await asyncio.to_thread(copies.lock_copies, link_directory, images) is None:
        size = sum(each.image.unpacked_bytes for each in images) / 1e6
        write_notice(f"unpacking environment {request.name}[{request.owner}] here ({size:.0f} MB)")
        await _unpack(images, request, directory, reaper)
        if await asyncio.to_thread(copies.lock_copies, link_directory, images) is None:
            raise BrokenEnvironment(
                "its copy on this node was removed again: the node has too little disk space"
            )
    return link_directory


async def _unpack(
    images: list[LayerRequest], request: pb.AgentEnvironment, directory: RankDir, reaper: Reaper
) -> None:
    """Unpack the images in a child process. Raises BrokenEnvironment with the last line of its output."""
    layers = [(each.owner, each.layer) for each in images]
    unpack_request = {
        "root": request.root,
        "place": request.copies,
        "limit": request.copies_bytes,
        "layers": layers,
    }
    with (directory.path / "unpacking.log").open("w+b") as output:
        child = reaper.spawn(
            (*_UNPACK, json.dumps(unpack_request)), output.fileno(), directory.path, os.environ
        )
        code = await child.ended
        output.seek(0)
        message = output.read(_MAX_MESSAGE_BYTES).decode("utf-8", "replace").strip().splitlines()
    if code != 0:
        raise BrokenEnvironment(
            message[-1] if message else f"unpacking its image ended with code {code}"
        )
