"""One replay with its figures, and the JSON object of several replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hai_backend.sim.replay.job import Outcome


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one trace on one cluster under one policy."""

    trace: str
    policy: str
    outcome: Outcome
    figures: Mapping[str, float | dict[str, float]]
    gpus_per_node: int = 8
    packed: bool = False

    @property
    def label(self) -> str:
        """What tells it from the others."""
        return self.outcome.label

    def number(self, key: str) -> float:
        """Return a figure that is a number."""
        value = self.figures[key]
        assert not isinstance(value, dict)
        return value


def results_to_json(results: Sequence[Result], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results as one JSON object.

    `trace` is a list if there are several traces. The figures of a single result are also at the top level.
    """
    traces = list(dict.fromkeys(result.trace for result in results))
    only = dict(results[0].figures) if len(results) == 1 else {}
    return {
        "trace": traces[0] if len(traces) == 1 else traces,
        **settings,
        **only,
        "results": [_entry(result) for result in results],
    }


def _entry(result: Result) -> dict[str, Any]:
    named = {"label": result.label, "trace": result.trace, "policy": result.policy}
    return {**named, **result.figures}
