"""Plans make every resolved version visible, share what parents have, and find shadows that break parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haienv.layers.plan import (
    Action,
    Distribution,
    Step,
    find_breaking_shadows,
    names_in_layer,
    plan_steps,
    select_changes,
)
from haienv.store.requirements_lock import Lock, normalize_name, parse_lock, parse_pin, parse_pins

NAMES = st.sampled_from("abcde")
VERSIONS = st.dictionaries(NAMES, st.sampled_from(["1", "2", "3"]))
DISTS = st.lists(
    st.builds(
        Distribution, NAMES, st.sampled_from(["1", "2"]), st.booleans(), st.frozensets(NAMES)
    ),
    unique_by=lambda dist: dist.name,
)


@given(VERSIONS, VERSIONS, DISTS)
def test_after_a_plan_every_resolved_version_is_visible(
    installed: Mapping[str, str], resolved: Mapping[str, str], provided: Sequence[Distribution]
) -> None:
    steps = plan_steps(installed, resolved, provided)
    present = {name: resolved[name] for name in names_in_layer(steps)}
    provided_versions = {dist.name: dist.version for dist in provided}
    assert {name: {**provided_versions, **present}[name] for name in resolved} == resolved
    assert all(provided_versions.get(name) != version for name, version in present.items())
    assert {step.name for step in steps} == {*installed, *resolved}
    assert steps == plan_steps(dict(reversed(installed.items())), resolved, provided)


@given(VERSIONS, DISTS)
def test_a_second_plan_changes_nothing(
    resolved: Mapping[str, str], provided: Sequence[Distribution]
) -> None:
    present = names_in_layer(plan_steps({}, resolved, provided))
    again = plan_steps({name: resolved[name] for name in present}, resolved, provided)
    assert select_changes(again) == ()
    assert names_in_layer(again) == present


CHAIN = [
    Distribution("torch", "2", compiled=True, requires=frozenset({"helper"})),
    Distribution("helper", "1", requires=frozenset({"numpy"})),
    Distribution("numpy", "1"),
    Distribution("rich", "1"),
]


@pytest.mark.parametrize(
    ("installed", "resolved", "expected"),
    [
        pytest.param({}, {"x": "1"}, Step(Action.INSTALL, "x", "1"), id="new"),
        pytest.param({"x": "1"}, {"x": "2"}, Step(Action.REPLACE, "x", "2", "1"), id="another version"),
        pytest.param({"x": "1"}, {"x": "1"}, Step(Action.KEEP, "x", "1", "1"), id="the same"),
        pytest.param({"x": "1"}, {}, Step(Action.DROP, "x", "", "1"), id="no longer wanted"),
        pytest.param({}, {"rich": "1"}, Step(Action.SHARE, "rich", "1"), id="a parent has it"),
        pytest.param({}, {"rich": "2"}, Step(Action.SHADOW, "rich", "2", "1"), id="hides a parent's"),
        pytest.param({}, {"numpy": "2"}, Step(Action.SHADOW, "numpy", "2", "1", ("torch",)),
                     id="hides what compiled code needs, through another"),
        pytest.param({"numpy": "2"}, {"numpy": "2"}, Step(Action.KEEP, "numpy", "2", "2"), id="hides it already"),
        pytest.param({}, {"torch": "3"}, Step(Action.SHADOW, "torch", "3", "2"), id="hides the compiled one itself"),
    ],
)  # fmt: skip
def test_the_step_for_one_package(
    installed: Mapping[str, str], resolved: Mapping[str, str], expected: Step
) -> None:
    steps = plan_steps(installed, resolved, CHAIN)
    assert steps == (expected,)
    assert bool(find_breaking_shadows(steps)) == bool(expected.needed_by)


@pytest.mark.parametrize(
    ("line", "name", "version"),
    [
        pytest.param("Foo_Bar.baz==1.0 --hash=sha256:aa", "foo-bar-baz", "1.0", id="names have one spelling"),
        pytest.param("x[extra]==1!2.0+local --hash=sha256:aa", "x", "1!2.0+local", id="extras, epochs, local"),
        pytest.param("x @ file:///a/x-1-py3-none-any.whl", "x", "file:///a/x-1-py3-none-any.whl", id="a path"),
        pytest.param("x==1 ; python_version>'3'", "x", "1", id="a marker"),
    ],
)  # fmt: skip
def test_pins_are_parsed(line: str, name: str, version: str) -> None:
    pin = parse_pin(line)
    assert pin is not None
    assert (pin.name, pin.version, normalize_name(name)) == (name, version, name)


PINS = st.lists(
    st.builds(
        lambda n, v: parse_pin(f"{n}=={v} --hash=sha256:{'a' * 64}"), NAMES, st.sampled_from("123")
    ),
    unique_by=lambda pin: pin.name,
).map(lambda pins: tuple(sorted(pins, key=lambda pin: pin.name)))


@given(PINS, st.sampled_from(["", "b" * 64]), st.sampled_from(["", "c" * 64]))
def test_a_lock_is_read_as_it_was_written(
    pins: tuple[object, ...], parent: str, sites: str
) -> None:
    lock = Lock("3.11", pins, parent, sites)  # type: ignore[arg-type]
    assert parse_lock(lock.text) == lock
    assert parse_pins(lock.text.replace(" --hash", " \\\n    --hash")) == lock.pins
