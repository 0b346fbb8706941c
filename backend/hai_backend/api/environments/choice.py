"""Resolves the environment of a task at submission, and checks that the user may use it."""

from __future__ import annotations

from dataclasses import replace

from hai.client.taskfile.validation.violations import suggestion_text
from hai_backend.api.environments.environments import Environments
from hai_backend.auth.permissions import Identity
from hai_backend.domain.environment import (
    Environment,
    EnvironmentState,
    can_see,
    candidate_names,
    parse_reference,
)
from hai_backend.domain.errors import Invalid, Violation
from hai_backend.domain.spec import TaskSpec

_FIELD = "options.py_venv"


class EnvironmentChoice:
    """Resolves environments. A task stores the name with its owner, so later environments do not change it."""

    def __init__(self, environments: Environments) -> None:
        self._environments = environments

    async def pin(self, identity: Identity, spec: TaskSpec) -> tuple[TaskSpec, str]:
        """Return the spec with its environment, and a note for the timeline. Raises Invalid."""
        requested = spec.options.py_venv
        if not requested:
            return spec, ""
        found = await self._find(identity, requested)
        if found.state is not EnvironmentState.READY:
            raise _invalid(f"{found.full_name} is {found.state}: {found.message}{_hint(found)}")
        pinned = replace(spec, options=replace(spec.options, py_venv=str(found.full_name)))
        return pinned, _note(found)

    async def _find(self, identity: Identity, requested: str) -> Environment:
        for full_name in candidate_names(requested, identity.name):
            found = await self._environments.get(full_name)
            if found is not None and _may_use(identity, found):
                return found
        return await self._find_of_others(identity, requested)

    async def _find_of_others(self, identity: Identity, requested: str) -> Environment:
        """Find the only environment of another user with this name. Raises Invalid."""
        name, owner = parse_reference(requested) or (requested, "")
        environments = await self._environments.list_all()
        usable = [e for e in environments.values() if _may_use(identity, e)]
        found = [e for e in usable if e.name == name and not owner]
        if len(found) == 1:
            return found[0]
        if found:
            choice = ", ".join(str(e.full_name) for e in found)
            raise _invalid(f"{requested} is ambiguous: use one of {choice}")
        names = [str(e.full_name) for e in usable] + [e.name for e in usable]
        raise _invalid(
            f"the cluster has no environment {requested[:128]!r}{suggestion_text(requested, names)}; "
            "`haienv push` builds one of yours there, `hai tui environments` lists its own"
        )


def _may_use(identity: Identity, environment: Environment) -> bool:
    """Say whether tasks of the caller may use an environment. Operators see all, but have no special right here."""
    return can_see(environment, identity.name, identity.user.groups)


def _hint(found: Environment) -> str:
    if found.state is EnvironmentState.BUILDING:
        return "; submit it when it is READY"
    rebuild = f"`haienv upgrade {found.name}` (with -p: on another Python) rebuilds it"
    return f"; `haienv info {found.full_name}` tells more, {rebuild}"


def _note(found: Environment) -> str:
    if found.deprecated:
        return f"environment {found.full_name} is deprecated: use {found.deprecated}"
    return ""


def _invalid(message: str) -> Invalid:
    return Invalid((Violation(_FIELD, message),), reason="NO_SUCH_ENVIRONMENT")
