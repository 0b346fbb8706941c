"""Policies are formatted and parsed without loss, and all violations are reported at once."""

from __future__ import annotations

import json
from dataclasses import fields
from math import inf, nextafter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.domain.errors import Invalid
from hai_backend.domain.node import Group
from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.scheduling.plan import Start, Wait
from hai_backend.scheduler import Policy, SchedulerCache, schedule
from hai_backend.scheduler.policy.group_policy import (
    format_settings,
    has_valid_policy,
    resolve_policy,
    settings,
)
from hai_backend.scheduler.policy.policy import Demotion, Ranking, parse, to_mapping
from hai_backend.scheduler.policy.rules import Rules
from hai_backend.scheduler.testing import node, nodes, queued, snap

_SECONDS = st.floats(0, 1e9)
_LEVELS = st.sampled_from(LEVELS)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    sources = draw(st.sets(st.sampled_from(LEVELS[:-1])))
    lower = {s: draw(st.sampled_from([x for x in LEVELS if x < s])) for s in sources}
    return Policy(
        ranking=draw(st.sampled_from(Ranking)),
        demotion={s: Demotion(to, draw(_SECONDS)) for s, to in lower.items()},
        time_slices=draw(st.booleans()),
        staying=draw(st.floats(1, 1000)),
        overhead_share=draw(st.floats(1e-6, 0.999)),
        minimum_seconds=draw(_SECONDS),
        urgent=draw(_LEVELS),
        daily_suspensions=draw(st.integers(1, 1000)),
        patience_seconds=draw(_SECONDS),
        lifted_to=draw(_LEVELS),
        default_quota=draw(st.none() | st.integers(0, 1000)),
        auto_level_when_unlimited=draw(_LEVELS),
        restart_seconds=draw(_SECONDS),
        relearn_seconds=draw(_SECONDS),
        ahead_limit=draw(st.integers(0, 1000)),
    )


@given(policies())
def test_settings_are_formatted_and_read_back(policy: Policy) -> None:
    assert parse(json.loads(json.dumps(to_mapping(policy)))) == policy


def test_to_mapping_contains_every_setting() -> None:
    assert set(to_mapping(Policy())) == {field.name for field in fields(Policy)}


def test_omitted_settings_have_their_defaults() -> None:
    assert parse({}) == Policy()
    assert parse({"staying": 2}, base=Policy(urgent=Priority.LOW)) == Policy(
        staying=2.0, urgent=Priority.LOW
    )


@pytest.mark.parametrize(
    ("mapping", "field", "message"),
    [
        pytest.param({"stayin": 1}, "stayin", "did you mean staying?", id="unknown"),
        pytest.param({1: 1}, "1", "there are ranking, demotion", id="not a name"),
        pytest.param({"ranking": "learnt"}, "ranking", "did you mean learned?", id="word"),
        pytest.param({"ranking": ["a"]}, "ranking", "there is no ['a']", id="no word"),
        pytest.param({"urgent": "high"}, "urgent", "did you mean HIGH?", id="case"),
        pytest.param({"urgent": "AUTO"}, "urgent", "there is no 'AUTO'", id="AUTO is no level"),
        pytest.param({"urgent": 30}, "urgent", "there is no 30", id="levels have names"),
        pytest.param({"time_slices": 1}, "time_slices", "true or false, not 1", id="flag"),
        pytest.param({"staying": 0.9}, "staying", "from 1 to 1000, not 0.9", id="staying"),
        pytest.param({"staying": True}, "staying", "not True", id="truth is no number"),
        pytest.param({"staying": "2"}, "staying", "not '2'", id="text is no number"),
        pytest.param({"overhead_share": 0}, "overhead_share", "not 0", id="share of nothing"),
        pytest.param({"overhead_share": 1}, "overhead_share", "not 1", id="share of all"),
        pytest.param({"patience_seconds": float("nan")}, "patience_seconds", "nan", id="NaN"),
        pytest.param({"patience_seconds": float("inf")}, "patience_seconds", "inf", id="endless"),
        pytest.param({"restart_seconds": -1}, "restart_seconds", "from 0", id="negative"),
        pytest.param({"relearn_seconds": 10**400}, "relearn_seconds", "…", id="huge"),
        pytest.param({"daily_suspensions": 0}, "daily_suspensions", "from 1", id="no suspension"),
        pytest.param(
            {"daily_suspensions": 1.5}, "daily_suspensions", "integer", id="not an integer"
        ),
        pytest.param({"default_quota": None}, "default_quota", "from -1", id="nothing"),
        pytest.param({"demotion": []}, "demotion", "names and values, not []", id="no table"),
        pytest.param({"demotion": {"HIHG": {}}}, "demotion.HIHG", "mean HIGH?", id="source"),
        pytest.param(
            {"demotion": {"HIGH": {"to": "HIGH", "after_seconds": 1}}},
            "demotion.HIGH.to",
            "a level below HIGH",
            id="not lower",
        ),
        pytest.param(
            {"demotion": {"HIGH": {"to": "LOW"}}},
            "demotion.HIGH.after_seconds",
            "is missing",
            id="half a demotion",
        ),
    ],
)
def test_a_violation_names_its_setting(mapping: Any, field: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse(mapping)
    (violation,) = caught.value.violations
    assert violation.field == field
    assert message in violation.message


def test_all_violations_are_reported_with_their_file() -> None:
    with pytest.raises(Invalid) as caught:
        parse({"stayin": 1, "urgent": 3, "demotion": {"HIGH": {"to": 1, "after": 2}}}, "a.toml")
    assert [v.field for v in caught.value.violations] == [
        "a.toml: stayin",
        "a.toml: urgent",
        "a.toml: demotion.HIGH.after_seconds",
        "a.toml: demotion.HIGH.to",
        "a.toml: demotion.HIGH.after",
    ]


def test_a_setting_that_is_not_an_object_is_reported() -> None:
    with pytest.raises(Invalid, match=r"a\.json: must hold names and values, not 3"):
        parse(3, "a.json")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["", "x", "3", "[]", '{"staying": 0}', '{"stayin": 2}', "[" * 100_000, '{"staying": NaN}'],
    ids=lambda text: text[:16] or "nothing",
)
def test_an_invalid_stored_text_counts_as_no_settings(text: str) -> None:
    group = Group("default", policy=text)
    assert resolve_policy(group, Policy(staying=3)) == Policy(staying=3)
    assert settings(group) == {}
    assert has_valid_policy(group) is (text == "")
    assert schedule(snap(nodes(1), group, queued(1))).decisions


def test_a_group_sets_what_it_says_and_follows_the_server_in_the_rest() -> None:
    group = Group("default", policy=format_settings({"urgent": "LOW"}))
    assert resolve_policy(group, Policy(staying=3)) == Policy(staying=3, urgent=Priority.LOW)


def test_each_group_is_scheduled_by_its_own_policy() -> None:
    parts = [
        part
        for first, group in ((0, "free"), (2, "strict"))
        for i in range(first, first + 2)
        for part in (node(f"n{i}", group=group), queued(i + 1, group=group, user="u"))
    ]
    plan = schedule(snap(*parts, Group("strict", policy=format_settings({"default_quota": 1}))))
    assert [type(d) for d in sorted(plan.decisions, key=lambda d: d.task)] == [
        *(Start, Start),
        *(Start, Wait),
    ]


def test_a_new_policy_of_a_group_applies_in_the_next_pass() -> None:
    state = snap(
        nodes(2), queued(1, 2), Group("default", policy=format_settings({"default_quota": 1}))
    )
    cache = SchedulerCache.from_snapshot(state, Policy())
    assert cache.decide(state.now).decisions == ()
    cache.update_rules(Rules({"default": Group("default")}))
    (start,) = cache.decide(state.now).decisions
    assert isinstance(start, Start)


def test_the_default_policy() -> None:
    """The manual describes these defaults. Run `tests/bench` before you change them."""
    assert to_mapping(Policy()) == {
        "ranking": "learned",
        "demotion": {"ABOVE_NORMAL": {"to": "NORMAL", "after_seconds": 1800.0}},
        "time_slices": True,
        "staying": 1.6,
        "overhead_share": 0.007,
        "minimum_seconds": 900.0,
        "urgent": "HIGH",
        "daily_suspensions": 24,
        "patience_seconds": 86_400.0,
        "lifted_to": "NORMAL",
        "default_quota": -1,
        "auto_level_when_unlimited": "NORMAL",
        "restart_seconds": 65.0,
        "relearn_seconds": 1800.0,
        "ahead_limit": 20,
    }


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("staying", 1.0, 1000.0),
        ("overhead_share", 1e-6, 0.999),
        ("minimum_seconds", 0.0, 1e9),
        ("patience_seconds", 0.0, 1e9),
        ("restart_seconds", 0.0, 1e9),
        ("relearn_seconds", 0.0, 1e9),
        ("daily_suspensions", 1, 1_000_000),
        ("default_quota", -1, 1_000_000),
        ("ahead_limit", 0, 1000),
    ],
)
def test_the_limits_of_a_number(name: str, least: float, most: float) -> None:
    for good in (least, most):
        assert to_mapping(parse({name: good}))[name] == good
    real = isinstance(least, float)
    for bad in (nextafter(least, -inf), nextafter(most, inf)) if real else (least - 1, most + 1):
        with pytest.raises(Invalid):
            parse({name: bad})


def test_a_long_wrong_value_is_cut_short() -> None:
    for length, shown in ((38, "x" * 38 + "'"), (39, "x" * 38 + "…")):
        with pytest.raises(Invalid) as caught:
            parse({"urgent": "x" * length})
        assert f"there is no '{shown};" in caught.value.violations[0].message


def test_levels_of_unlimited_quota_and_words_are_read() -> None:
    found = parse(
        {"default_quota": -1, "urgent": "LOW", "ranking": "attained", "time_slices": False}
    )
    assert found == Policy(
        urgent=Priority.LOW, ranking=Ranking.ATTAINED, time_slices=False, default_quota=None
    )


def test_equal_settings_are_stored_as_equal_texts() -> None:
    one, other = {"staying": 2, "urgent": "LOW"}, {"urgent": "LOW", "staying": 2}
    assert format_settings(one) == format_settings(other)
    assert (
        format_settings({}),
        resolve_policy(Group("g", policy=format_settings({})), Policy(staying=3)),
    ) == (
        "",
        Policy(staying=3),
    )
