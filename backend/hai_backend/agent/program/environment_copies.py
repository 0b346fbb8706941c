"""Lets a program run in copies of its environment's layers on the node's own disk, where they were packed for that.

Unpacking is a process of its own, which ends with the rank; using a copy is a lock that this process holds as long as
it lives. Where anything is in the way the environment is used from shared storage, and the log of the task says why.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.program.reaper import Reaper
from hai_backend.agent.rank_dir import RankDir
from hai_backend.environments import copies
from hai_backend.environments.activation import Activation
from hai_backend.environments.copies import Wanted
from hai_backend.environments.errors import Broken

_UNPACK = (sys.executable, "-I", "-B", "-m", "hai_backend.environments.unpack")
_SAID_BYTES = 2000


async def copied(
    active: Activation,
    asked: pb.AgentEnvironment,
    directory: RankDir,
    reaper: Reaper,
    say: Callable[[str], None],
) -> Activation:
    """The environment in this node's copies, or as it is."""
    try:
        wanted = await asyncio.to_thread(_wanted, active, Path(asked.root))
        if not wanted:
            return active
        place = await _held(wanted, asked, directory, reaper, say)
    except (Broken, OSError) as error:
        say(f"environment {active.called} runs from shared storage: {error}")
        return active
    return active.moved(Path(asked.root), place)


def _wanted(active: Activation, root: Path) -> list[Wanted]:
    """Nothing: it was not packed, so nobody asked for a copy. Raises Broken when only a part of the chain was."""
    chain = [layer.relative_to(root).parts for layer in active.layers]
    found = [(owner, copies.wanted_at(root, owner, layer)) for owner, _, layer in chain]
    if found[0][1] is None:
        return []
    if missing := [owner for owner, wanted in found if wanted is None]:
        raise Broken(f"it extends a layer of {missing[0]} that has no image (haienv pack)")
    return [wanted for _, wanted in found if wanted is not None]


async def _held(
    wanted: list[Wanted],
    asked: pb.AgentEnvironment,
    directory: RankDir,
    reaper: Reaper,
    say: Callable[[str], None],
) -> Path:
    """Where the copies are. Raises Broken."""
    place = await asyncio.to_thread(copies.own, Path(asked.copies))
    if await asyncio.to_thread(copies.hold, place, wanted) is None:
        size = sum(each.image.unpacked_bytes for each in wanted) / 1e6
        say(f"unpacking environment {asked.name}[{asked.owner}] here ({size:.0f} MB)")
        await _unpack(wanted, asked, directory, reaper)
        if await asyncio.to_thread(copies.hold, place, wanted) is None:
            raise Broken("its copy on this node went away again: there is too little room")
    return place


async def _unpack(
    wanted: list[Wanted], asked: pb.AgentEnvironment, directory: RankDir, reaper: Reaper
) -> None:
    layers = [(each.owner, each.layer) for each in wanted]
    order = {
        "root": asked.root,
        "place": asked.copies,
        "limit": asked.copies_bytes,
        "layers": layers,
    }
    with (directory.path / "unpacking.log").open("w+b") as output:
        child = reaper.spawn(
            (*_UNPACK, json.dumps(order)), output.fileno(), directory.path, os.environ
        )
        code = await child.ended
        output.seek(0)
        said = output.read(_SAID_BYTES).decode("utf-8", "replace").strip().splitlines()
    if code != 0:
        raise Broken(said[-1] if said else f"unpacking its image ended with code {code}")
