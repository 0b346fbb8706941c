"""Activates the environment that the server names; a broken one is a reason not to start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.preparing import CannotStart
from hai_backend.agent.rank_dir import Identity
from hai_backend.domain.environment import EnvironmentName
from hai_backend.environments.activation import Activation, activate
from hai_backend.environments.errors import Broken


async def activation(
    welcome: pb.AgentWelcome, identity: Identity, say: Callable[[str], None]
) -> Activation | None:
    """None: the task names no environment, or goes on without. Raises CannotStart naming environment and node."""
    if not welcome.HasField("environment"):
        return None
    asked = welcome.environment
    called = EnvironmentName(asked.owner, asked.name)
    try:
        return await asyncio.to_thread(activate, Path(asked.root), called, asked.layer)
    except Broken as error:
        why = f"environment {called} cannot be activated on {identity.node}: {error}"
        if not asked.fallback:
            raise CannotStart(why) from error
        say(f"{why}; going on without it, as env_fallback says")
        return None
