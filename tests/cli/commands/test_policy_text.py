"""Scheduling settings are parsed, shown and previewed."""

from __future__ import annotations

import json

import pytest

from hai.v1.policy_pb2 import GroupEffect, SchedulingPolicy, TaskChange, TaskChanges
from hai_tui.views.nodes import effect_lines
from hai_tui.views.policy import SETTING_HINTS, parse_policy, settings_text


def test_every_setting_of_the_contract_can_be_typed() -> None:
    assert list(SETTING_HINTS) == list(SchedulingPolicy.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        pytest.param("ranking=submitted", 3, id="word"),
        pytest.param("time_slices=yes", True, id="flag"),
        pytest.param("staying=1.25", 1.25, id="number"),
        pytest.param("daily_suspensions=7", 7, id="whole number"),
        pytest.param("patience_seconds=1d", 86400, id="time"),
        pytest.param("restart_seconds=61.5", 61.5, id="seconds"),
        pytest.param("urgent=VERY_HIGH", 40, id="level"),
        pytest.param("default_quota=unlimited", -1, id="no limit"),
    ],
)
def test_what_is_typed_is_shown_again(typed: str, value: object) -> None:
    name, _, written = typed.partition("=")
    policy = parse_policy([(name, written)])
    assert getattr(policy, name) == value
    assert settings_text(policy) == {name: written}


@pytest.mark.parametrize("written", ["none", "HIGH:LOW:30m", "HIGH:LOW:30m,NORMAL:LOW:1.5"])
def test_demotions(written: str) -> None:
    assert settings_text(parse_policy([("demotion", written)])) == {"demotion": written}


def changes(*ids: int, count: int = 0) -> TaskChanges:
    tasks = [TaskChange(task_id=i, task_name=f"t{i}", user="ada") for i in ids]
    return TaskChanges(count=count or len(ids), tasks=tasks)


EFFECT = GroupEffect(
    starts=changes(1, 2), suspended=changes(3, count=200), spared=changes(4), moved=5, waiting=9
)


def test_an_effect_in_lines() -> None:
    assert list(effect_lines(EFFECT)) == [
        "would start (2): 1 t1 (ada), 2 t2 (ada)",
        "would be suspended (200): 3 t3 (ada), …",
        "would no longer be suspended (1): 4 t4 (ada)",
        "5 of 9 waiting tasks would change position",
    ]


def test_an_effect_in_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAI_LANG", "zh")
    assert next(iter(effect_lines(EFFECT))) == "将启动 (2): 1 t1 (ada), 2 t2 (ada)"


def test_json_has_what_is_set_and_all_that_is_in_force(hai) -> None:
    line = "hai group update extra staying=2 --preview --json"
    found = json.loads(hai.line(line).out)
    assert found["policy"]["staying"] == 2
    assert found["policy"]["urgent"] is None
    assert found["effect"]["starts"] is None or found["effect"]["starts"]["count"] == 0
    (extra,) = [
        g for g in json.loads(hai("groups", "--json").out)["groups"] if g["name"] == "extra"
    ]
    assert extra["policy"]["staying"] is None
    assert extra["effect"] is None
