"""Checks the tasks that a submitted task waits for: they exist, and can still end with the required outcome."""

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
    """Checks the option `after` of a submission. A task that has already ended with the required outcome is valid."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access

    async def require(self, identity: Identity, predecessors: Sequence[AfterSpec]) -> str:
        """Return a note for the timeline. Raises Invalid with every task that does not exist or has ended otherwise."""
        problems = [await self._find_problem(identity, after) for after in predecessors]
        violations = [
            Violation(f"options.after[{i}].task", problem)
            for i, problem in enumerate(problems)
            if problem
        ]
        if violations:
            raise Invalid(tuple(violations))
        if not predecessors:
            return ""
        return f"after task {format_list([after.task for after in predecessors])}"

    async def _find_problem(self, identity: Identity, after: AfterSpec) -> str:
        try:
            task = await self._access.get_visible(identity, after.task)
        except NotFound as error:
            return str(error)
        if task.outcome is None or dependencies.is_met(after, task.outcome):
            return ""
        return (
            f"{dependencies.describe_unmet(after, task.outcome)}; {_suggest(after, task.outcome)}"
        )


def _suggest(after: AfterSpec, outcome: Outcome) -> str:
    """Name the options that are met by the outcome of the finished task."""
    candidates = (replace(after, outcome=other) for other in AfterOutcome)
    options = [
        f"`--after {o.task}:{o.outcome}`" for o in candidates if dependencies.is_met(o, outcome)
    ]
    return f"{' or '.join(options)} would let this one start"
