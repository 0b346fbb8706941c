"""The filter language: the meaning of each term, and errors."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.api.request.filters import parse, parse_order
from hai_backend.domain.errors import Invalid
from hai_backend.domain.spec import TaskType
from hai_backend.domain.task import Outcome, TaskState
from hai_backend.store.base import TaskFilter

NOW = 1_000_000.0
W, R, S, F = TaskState
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", {}, id="nothing"),
        pytest.param("  ", {}, id="blanks"),
        pytest.param("state:running", {"states": {R}}, id="a state"),
        pytest.param("state:waiting", {"states": {W}}, id="waiting has never run"),
        pytest.param("state:queued", {"states": {W, S}}, id="queued is in the queue"),
        pytest.param("state:unfinished", {"states": {W, R, S}}, id="unfinished"),
        pytest.param("STATE=Running,SUSPENDED", {"states": {R, S}}, id="case and = do not matter"),
        pytest.param("-state:finished", {"not_states": {F}}, id="a negated state"),
        pytest.param(
            "outcome:failed,stopped", {"outcomes": {Outcome.FAILED, Outcome.STOPPED}}, id="outcomes"
        ),
        pytest.param("user:me,bob", {"users": {"ada", "bob"}}, id="me is the caller"),
        pytest.param("-user:me", {"not_users": {"ada"}}, id="others"),
        pytest.param("name:bert*", {"names": ("bert*",)}, id="a wildcard"),
        pytest.param(
            'name:"my task, 2"', {"names": ("my task, 2",)}, id="quotes keep blanks and commas"
        ),
        pytest.param("name:a:b", {"names": ("a:b",)}, id="a colon in a value"),
        pytest.param("-name:x -name:y", {"not_names": ("x", "y")}, id="negations add up"),
        pytest.param("tag:a,b -tag:c", {"tags": {"a", "b"}, "not_tags": {"c"}}, id="tags"),
        pytest.param("group:default", {"groups": {"default"}}, id="a group"),
        pytest.param("type:jupyter", {"task_types": {TaskType.JUPYTER}}, id="a type"),
        pytest.param("id:1,2", {"ids": {1, 2}}, id="ids"),
        pytest.param("after:1,2", {"awaiting": {1, 2}}, id="who waits for tasks"),
        pytest.param("starred:true", {"starred": True}, id="starred"),
        pytest.param("priority>=30", {"priority_min": 30}, id="at least"),
        pytest.param("priority>30", {"priority_min": 31}, id="more than"),
        pytest.param("priority<high", {"priority_max": 29}, id="less than a named level"),
        pytest.param("priority:-1", {"priority_min": -1, "priority_max": -1}, id="exactly"),
        pytest.param(
            "priority>5 priority>8 priority<50",
            {"priority_min": 9, "priority_max": 49},
            id="ranges narrow",
        ),
        pytest.param("age<2d", {"created_after": NOW - 172800}, id="younger than"),
        pytest.param("age:>90m", {"created_before": NOW - 5400}, id="older than"),
        pytest.param("created>2026-01-01", {"created_after": NEW_YEAR}, id="after a day"),
        pytest.param(
            "created<2026-01-01T01:00+01:00",
            {"created_before": NEW_YEAR},
            id="before a time elsewhere",
        ),
    ],
)
def test_filter_is_parsed(text: str, expected: dict[str, Any]) -> None:
    values = {k: frozenset(v) if isinstance(v, set) else v for k, v in expected.items()}
    assert parse(text, "ada", NOW) == TaskFilter(**values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "stat:running",
            "'stat:running': there is no key 'stat'; did you mean state?",
            id="a key",
        ),
        pytest.param("state:runing", "did you mean running?", id="a state"),
        pytest.param(
            "state:failed", "failed is an outcome; write outcome:failed", id="an outcome as state"
        ),
        pytest.param("outcome:running", "is none of succeeded, failed", id="an outcome"),
        pytest.param("type:train", "did you mean training?", id="a type"),
        pytest.param("bert", "is not key:value", id="a bare word"),
        pytest.param("state:", "has no value", id="no value"),
        pytest.param("state:,", "has no value", id="only a comma"),
        pytest.param("id:one", "'one' is not an integer", id="an id"),
        pytest.param("priority:1,2", "takes one value", id="two priorities"),
        pytest.param("priority>urgent", "not an integer", id="a level"),
        pytest.param("starred:yes", "write :true or :false", id="a switch"),
        pytest.param("-group:x", "only state, user, name, tag can be negated", id="a negation"),
        pytest.param("state>running", "cannot be compared", id="a comparison"),
        pytest.param("created>2d", "write age<2d", id="an age as date"),
        pytest.param("created>yesterday", "is not a date", id="a date"),
        pytest.param("created:2026-01-01", "write created> or created<", id="an exact date"),
        pytest.param("age:2d", "write age<2d", id="an exact age"),
        pytest.param("age<2y", "one of s, m, h, d, w", id="a unit"),
        pytest.param("state:running state:queued", "is given twice", id="twice"),
        pytest.param('name:"x', "is not key:value", id="an open quote"),
        pytest.param("x" * 5000, "at most 4096", id="too long"),
    ],
)
def test_wrong_term_is_named(text: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse(text, "ada", NOW)
    assert [v.field for v in caught.value.violations] == ["filter"]
    assert message in str(caught.value)


def test_all_wrong_terms_are_reported_together() -> None:
    with pytest.raises(Invalid) as caught:
        parse("state:x outcome:y foo:z", "ada", NOW)
    assert len(caught.value.violations) == 3


@given(
    st.text(max_size=60)
    | st.from_regex(r"-?(state|name|age|created|priority|id):[<>=]*.{0,9}", fullmatch=True)
)
def test_any_text_is_a_filter_or_invalid(text: str) -> None:
    with suppress(Invalid):
        assert isinstance(parse(text, "ada", NOW), TaskFilter)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("id", True)),
        ("id", ("id", False)),
        ("name desc", ("name", True)),
        (" priority  DESC ", ("priority", True)),
    ],
)
def test_order_is_parsed(text: str, expected: tuple[str, bool]) -> None:
    assert parse_order(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nme", "did you mean name?"),
        ("id down", "must be desc or nothing"),
        ("id; drop table", "must be desc"),
    ],
)
def test_invalid_order_is_refused(text: str, message: str) -> None:
    with pytest.raises(Invalid, match="order_by") as caught:
        parse_order(text)
    assert message in str(caught.value)
