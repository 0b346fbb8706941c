"""Tasks that shall go before one that is submitted: they are there, are the caller's to see, and may still end so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hai_backend.api.tasks.access import TaskAccess
from hai_backend.auth.permissions import Identity
from hai_backend.domain.errors import Invalid, NotFound, Violation
from hai_backend.domain.formatting import format_list
from hai_backend.domain.spec import AfterOutcome, AfterSpec
from hai_backend.domain.task import Outcome
from hai_backend.lifecycle.rules import dependencies


class Predecessors:
    """What has ended rightly by now is no fault: the task is told of it as soon as it is there."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access

    async def require(self, identity: Identity, wanted: Sequence[AfterSpec]) -> str:
        """What the timeline says of them. Raises Invalid with all that are none, or that have ended otherwise."""
        found = [await self._problem(identity, after) for after in wanted]
        violations = [
            Violation(f"options.after[{i}].task", problem)
            for i, problem in enumerate(found)
            if problem
        ]
        if violations:
            raise Invalid(tuple(violations))
        return f"after task {format_list([after.task for after in wanted])}" if wanted else ""

    async def _problem(self, identity: Identity, after: AfterSpec) -> str:
        try:
            task = await self._access.visible(identity, after.task)
        except NotFound as error:
            return str(error)
        if task.outcome is None or dependencies.is_met(after, task.outcome):
            return ""
        return (
            f"{dependencies.describe_unmet(after, task.outcome)}; {_way_out(after, task.outcome)}"
        )


def _way_out(after: AfterSpec, outcome: Outcome) -> str:
    """It will not end otherwise any more."""
    others = (replace(after, outcome=other) for other in AfterOutcome)
    words = [f"`--after {o.task}:{o.outcome}`" for o in others if dependencies.is_met(o, outcome)]
    return f"{' or '.join(words)} would let this one start"
