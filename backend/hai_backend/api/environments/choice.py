"""Which environment a task means, and whether it can be had: asked when the task is submitted."""

from __future__ import annotations

from dataclasses import replace

from hai.client.taskfile.validation.violations import nearest
from hai_backend.api.environments.environments import Environments
from hai_backend.auth.permissions import Identity
from hai_backend.domain.environment import (
    Environment,
    EnvironmentState,
    candidates,
    parse_reference,
    sees,
)
from hai_backend.domain.errors import Invalid, Violation
from hai_backend.domain.spec import TaskSpec

_FIELD = "options.py_venv"


class EnvironmentChoice:
    """A task keeps the name with its owner, so it means the same whatever others make later."""

    def __init__(self, environments: Environments) -> None:
        self._environments = environments

    async def pin(self, identity: Identity, spec: TaskSpec) -> tuple[TaskSpec, str]:
        """The task with its environment, and what its timeline says of that. Raises Invalid."""
        wanted = spec.options.py_venv
        if not wanted:
            return spec, ""
        found = await self._find(identity, wanted)
        if found.state is not EnvironmentState.READY:
            raise _refused(f"{found.called} is {found.state}: {found.message}{_way_out(found)}")
        pinned = replace(spec, options=replace(spec.options, py_venv=str(found.called)))
        return pinned, _note(found)

    async def _find(self, identity: Identity, wanted: str) -> Environment:
        for called in candidates(wanted, identity.name):
            found = await self._environments.one(called)
            if found is not None and _may_use(identity, found):
                return found
        return await self._of_others(identity, wanted)

    async def _of_others(self, identity: Identity, wanted: str) -> Environment:
        """A bare name that only one other has made. Raises Invalid."""
        name, owner = parse_reference(wanted) or (wanted, "")
        known = await self._environments.known()
        usable = [e for e in known.values() if _may_use(identity, e)]
        found = [e for e in usable if e.name == name and not owner]
        if len(found) == 1:
            return found[0]
        if found:
            choice = ", ".join(str(e.called) for e in found)
            raise _refused(f"{wanted} may be {choice}: write which")
        names = [str(e.called) for e in usable] + [e.name for e in usable]
        raise _refused(
            f"the cluster has no environment {wanted[:128]!r}{nearest(wanted, names)}; "
            "`haienv push` builds one of yours there, `hai tui environments` lists its own"
        )


def _may_use(identity: Identity, environment: Environment) -> bool:
    """Operators look at all, but run their tasks as themselves."""
    return sees(environment, identity.name, identity.user.groups)


def _way_out(found: Environment) -> str:
    if found.state is EnvironmentState.BUILDING:
        return "; submit it when it is READY"
    anew = f"`haienv upgrade {found.name}` (with -p: on another Python) builds it anew"
    return f"; `haienv info {found.called}` tells more, {anew}"


def _note(found: Environment) -> str:
    if found.deprecated:
        return f"environment {found.called} is deprecated: use {found.deprecated}"
    return ""


def _refused(message: str) -> Invalid:
    return Invalid((Violation(_FIELD, message),), reason="NO_SUCH_ENVIRONMENT")
