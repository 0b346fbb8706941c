"""The alert rules and the dashboard use only metrics, labels and values that servers export."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import grpc
import pytest
import yaml

from hai_backend.domain.node import NodeState
from hai_backend.domain.priority import LEVELS
from hai_backend.domain.task import Outcome, TaskState
from hai_backend.metrics.prometheus import Metrics

from .conftest import CHART

ALERTS = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())
EXPRESSIONS = [
    *(pytest.param(rule["expr"], id=rule["alert"]) for rule in RULES),
    *(pytest.param(t["expr"], id=p["title"]) for p in DASHBOARD["panels"] for t in p["targets"]),
]
VALUES = {
    "state": {s.value for s in TaskState} | {s.value for s in NodeState} | {"CORDONED"},
    "outcome": {o.value for o in Outcome},
    "priority": {level.name for level in LEVELS},
    "code": {code.name for code in grpc.StatusCode},
}


def series() -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the names of all series with their labels."""
    metrics = Metrics()
    for metric in vars(metrics.registry)["_names_to_collectors"].values():
        labels = frozenset(metric._labelnames)
        (described,) = metric.describe()
        suffixes = {"counter": ["_total"], "gauge": [""], "histogram": ["_count", "_sum"]}
        for suffix in suffixes[described.type]:
            yield described.name + suffix, labels
        if described.type == "histogram":
            yield f"{described.name}_bucket", labels | {"le"}


KNOWN = dict(series())


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_is_asked_for_exists(expression: str) -> None:
    asked = re.findall(r"\b(hai_\w+)(?:\{([^}]*)\})?", expression)
    assert asked
    for name, chosen in asked:
        assert name in KNOWN
        for label, value in re.findall(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"', chosen):
            assert label in KNOWN[name]
            assert set(value.split("|")) <= VALUES[label]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_is_grouped_by_exists(expression: str) -> None:
    labels = {"instance"}.union(*(KNOWN[name] for name in re.findall(r"\bhai_\w+", expression)))
    for names in re.findall(r"\bby \(([^)]*)\)", expression):
        assert {name.strip() for name in names.split(",")} <= labels


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_brackets_match(expression: str) -> None:
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_to_do(rule: dict[str, dict[str, str]]) -> None:
    assert {"alert", "expr", "for", "labels", "annotations"} == rule.keys()
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert {"summary", "description"} == rule["annotations"].keys()


def test_panels_have_names_and_places_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({p["id"] for p in panels}) == len({p["title"] for p in panels}) == len(panels)
    cells = [
        (x, y)
        for grid in (p["gridPos"] for p in panels)
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
