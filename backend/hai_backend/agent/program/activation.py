"""Activates the environment that the server names; a broken one is a reason not to start.

A program must be able to say `import hai`, or `import hfai` as in HAI, so one whose environment has no such package
gets the agent's: behind all that the environment has, and nothing else of the agent's packages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import hai
from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.program.environment_copies import copied
from hai_backend.agent.program.preparation import CannotStart
from hai_backend.agent.program.reaper import Reaper
from hai_backend.agent.rank_dir import Identity, RankDir
from hai_backend.domain.environment import EnvironmentName
from hai_backend.environments.activation import Activation, activate
from hai_backend.environments.errors import Broken

_SDK = ("hai", "hfai")
"""Packages that programs import and every agent has, beside one another."""


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
    asked = welcome.environment
    called = EnvironmentName(asked.owner, asked.name)
    try:
        active = await asyncio.to_thread(activate, Path(asked.root), called, asked.layer)
    except Broken as error:
        why = f"environment {called} cannot be activated on {identity.node}: {error}"
        if not asked.fallback:
            raise CannotStart(why) from error
        say(f"{why}; going on without it, as env_fallback says")
        return None
    if asked.copies:
        active = await copied(active, asked, directory, reaper, say)
    missing = [name for name in _SDK if not active.has(name)]
    return _with_ours(active, missing, directory.path / "sdk") if missing else active


def _with_ours(active: Activation, missing: Sequence[str], place: Path) -> Activation:
    """A directory with a link to each: what stands beside our packages is not for programs."""
    place.mkdir(exist_ok=True)
    for name in missing:
        with suppress(FileExistsError):
            (place / name).symlink_to(Path(hai.__file__).parent.parent / name)
    return replace(active, python_paths=(*active.python_paths, str(place)))
