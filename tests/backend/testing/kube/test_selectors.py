"""Label selectors, field selectors, and quantities."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.testing.kube.body import quantity
from hai_backend.testing.kube.errors import ApiError
from hai_backend.testing.kube.storage.selectors import label_selector, object_selector

LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "1", "2"]))


@pytest.mark.parametrize(
    ("text", "labels", "selected"),
    [
        pytest.param("", {}, True, id="everything"),
        pytest.param("a==1", {"a": "1"}, True, id="twice equal"),
        pytest.param("a=", {"a": ""}, True, id="empty value"),
        pytest.param("a=", {}, False, id="empty value and no label"),
        pytest.param("a!=1", {}, True, id="not equal without the label"),
        pytest.param("a in (1, 2)", {"a": "2"}, True, id="blanks in a set"),
        pytest.param("a notin (1)", {}, True, id="notin without the label"),
        pytest.param("x.io/a in (1),b", {"x.io/a": "1", "b": ""}, True, id="prefix, and a comma"),
        pytest.param("!a", {"a": ""}, False, id="absent"),
    ],
)
def test_label_selectors(text: str, labels: dict[str, str], selected: bool) -> None:
    assert label_selector(text)(labels) is selected


@pytest.mark.parametrize("text", ["a in", "a in (1", "=b", "a=b=c", "a b", "a>1"])
def test_broken_selectors_are_refused(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        label_selector(text)
    assert caught.value.code == 400


@given(LABELS, st.sampled_from("abc"), st.sampled_from(["1", "2"]))
def test_every_requirement_has_its_opposite(labels: dict[str, str], key: str, value: str) -> None:
    for yes, no in (
        (f"{key}={value}", f"{key}!={value}"),
        (f"{key} in ({value})", f"{key} notin ({value})"),
        (key, f"!{key}"),
    ):
        assert label_selector(yes)(labels) != label_selector(no)(labels)


def test_selectors_of_objects() -> None:
    assert not object_selector(None)({})
    assert object_selector({})({"a": "1"})
    both = {
        "matchLabels": {"a": "1"},
        "matchExpressions": [{"key": "b", "operator": "DoesNotExist"}],
    }
    assert object_selector(both)({"a": "1"})
    assert not object_selector(both)({"a": "1", "b": ""})


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500m", Fraction(1, 2)), ("2", Fraction(2)), ("1Gi", Fraction(2**30)), ("1k", Fraction(1000)),
        ("1e3", Fraction(1000)), ("0.5", Fraction(1, 2)), ("1E", Fraction(10**18)), (3, Fraction(3)),
    ],
)  # fmt: skip
def test_quantities(text: str, number: Fraction) -> None:
    assert quantity(text) == number


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1gi", "--1"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match=r"quantities must match|Invalid"):
        quantity(text)
