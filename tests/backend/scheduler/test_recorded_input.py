"""A log of passes is formatted and parsed line by line without loss, and other texts are rejected."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hai_backend.domain.errors import Invalid
from hai_backend.domain.node import Group
from hai_backend.domain.scheduling.plan import Plan, Start
from hai_backend.domain.scheduling.snapshot import Ending
from hai_backend.scheduler import Policy
from hai_backend.scheduler.policy.group_policy import format_settings
from hai_backend.scheduler.policy.rules import Rules
from hai_backend.scheduler.recorded_input import (
    Begin,
    Pass,
    PassInput,
    apply,
    begin_line,
    parse_line,
    pass_line,
)
from hai_backend.scheduler.testing import NOW, nodes, queued, running, snap

STATE = snap(nodes(2), running(9, "n00"), endings=(Ending(queued(8), 5.0),))
BEGIN = Begin(Policy(staying=3.0), STATE, "1.2")
OLD: dict[str, Any] = json.loads(begin_line(BEGIN))


def test_a_begin_line_is_parsed_back_to_an_equal_cache() -> None:
    line = begin_line(BEGIN)
    assert line.index("\n") == len(line) - 1
    assert parse_line(line) == BEGIN
    assert BEGIN.cache().snapshot() == STATE
    assert parse_line(json.dumps({k: v for k, v in OLD.items() if k != "release"})) == Begin(
        BEGIN.policy, STATE
    )


def test_a_pass_line_is_parsed_back() -> None:
    shown = PassInput(NOW + 1, Rules(), (), (Ending(queued(7), 1.0),), (queued(1),), (9,))
    done = Pass(shown, Plan(0, (Start(1, ("n01",), queued(1).priority, "why"),)))
    line = pass_line(done)
    assert line.index("\n") == len(line) - 1
    assert parse_line(line) == done


def test_a_cache_applies_every_update() -> None:
    cache = BEGIN.cache()
    rules = Rules({"default": Group("default", policy=format_settings({"default_quota": 1}))})
    news = PassInput(
        NOW + 5, rules, tuple(nodes(3)), (Ending(queued(7), 1.0),), (queued(1, 2),), (9,)
    )
    assert not apply(cache, news).decisions
    assert len(list(cache.waits())) == 1
    found = cache.snapshot()
    assert (found.now, found.groups, found.tasks) == (NOW + 5, rules.groups, (queued(1, 2),))
    assert (len(found.nodes), len(found.endings)) == (3, 2)


def test_rules_that_are_not_updated_stay() -> None:
    cache = BEGIN.cache()
    (start,) = apply(cache, PassInput(NOW + 5, tasks=(queued(1),))).decisions
    assert isinstance(start, Start)
    assert start.nodes == ("n01",)


@pytest.mark.parametrize(
    ("line", "field", "message"),
    [
        pytest.param("{", "LOG:3", "is not JSON", id="torn"),
        pytest.param("[" * 100_000, "LOG:3", "is not JSON", id="deep"),
        pytest.param(json.dumps(OLD | {"version": 2}), "LOG:3", "is 'hai.decisions' 2", id="later"),
        pytest.param(json.dumps(OLD | {"format": "x"}), "LOG:3", "is 'x' 1; known is", id="other"),
        pytest.param(json.dumps(OLD | {"policy": 1}), "LOG:3.policy", "is missing", id="policy"),
        pytest.param(
            json.dumps(OLD | {"snapshot": []}), "LOG:3.snapshot", "is missing", id="state"
        ),
        pytest.param("3", "LOG:3", "", id="a number"),
        pytest.param("{}", "LOG:3", "", id="nothing"),
    ],
)
def test_an_invalid_log_line_is_rejected_with_its_position(
    line: str, field: str, message: str
) -> None:
    with pytest.raises(Invalid) as caught:
        parse_line(line, "LOG:3")
    (violation, *_) = caught.value.violations
    assert violation.field.startswith(field)
    assert message in violation.message
