"""The cache is correct after a list, even if events of the watch were lost, repeated or reordered before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.kube_cache.cache import Change, ObjectCache

Body = dict[str, Any]
Event = tuple[str, Body]


def body(uid: str, version: int, color: str = "red") -> Body:
    return {"metadata": {"uid": uid, "resourceVersion": str(version)}, "color": color}


def color_of(found: Body) -> str:
    return str(found["color"])


def picture() -> ObjectCache[str]:
    return ObjectCache(color_of)


def listed(seen: ObjectCache[str], items: list[Body], version: int) -> list[Change[str]]:
    looked = [seen.read_item(item) for item in items]
    return seen.apply_list({s.uid: s for s in looked}, version)


def as_told(seen: ObjectCache[str]) -> dict[str, str | None]:
    return {uid: seen.get(uid) for uid in "abcdef" if seen.get(uid) is not None}


TABLE = [
    pytest.param([("ADDED", body("a", 1))], {"a": "red"}, id="it is there"),
    pytest.param(
        [("ADDED", body("a", 1)), ("MODIFIED", body("a", 2, "blue"))], {"a": "blue"}, id="changed"
    ),
    pytest.param(
        [("MODIFIED", body("a", 2, "blue")), ("ADDED", body("a", 1))],
        {"a": "blue"},
        id="older news come later",
    ),
    pytest.param([("ADDED", body("a", 1)), ("DELETED", body("a", 2))], {}, id="gone"),
    pytest.param(
        [("DELETED", body("a", 3)), ("MODIFIED", body("a", 2))], {}, id="gone, then told of before"
    ),
    pytest.param(
        [("ADDED", body("a", 1)), ("DELETED", body("a", 1))], {}, id="deleted at its last version"
    ),
    pytest.param([("DELETED", body("a", 2))], {}, id="deleted before it was seen"),
]


@pytest.mark.parametrize(("events", "truth"), TABLE)
def test_what_is_known_after(events: list[Event], truth: dict[str, str]) -> None:
    seen = picture()
    for kind, one in events:
        seen.apply_change(kind, one)
    assert as_told(seen) == truth


def test_what_reads_alike_is_no_change() -> None:
    seen = picture()
    assert seen.apply_change("ADDED", body("a", 1)) == Change("a", None, "red")
    assert seen.apply_change("MODIFIED", body("a", 2)) is None
    assert seen.apply_change("MODIFIED", body("a", 3, "blue")) == Change("a", "red", "blue")


def test_versions_of_a_cluster_that_was_put_back_to_an_earlier_day_count_anew() -> None:
    seen = picture()
    listed(seen, [body("a", 90), body("b", 91)], 100)
    seen.apply_change("ADDED", body("c", 101))
    seen.apply_change("DELETED", body("d", 102))
    assert listed(seen, [body("a", 40, "blue"), body("d", 41)], 50) == [
        Change("b", "red", None),
        Change("c", "red", None),
        Change("a", "red", "blue"),
        Change("d", None, "red"),
    ]
    assert seen.apply_change("ADDED", body("e", 51)) == Change("e", None, "red")


def test_a_list_tells_what_was_missed() -> None:
    seen = picture()
    listed(seen, [body("a", 1), body("b", 2)], 2)
    assert listed(seen, [body("b", 4, "blue"), body("c", 5)], 6) == [
        Change("a", "red", None),
        Change("b", "red", "blue"),
        Change("c", None, "red"),
    ]


def test_news_from_before_a_list_are_no_news() -> None:
    seen = picture()
    listed(seen, [], 9)
    assert seen.apply_change("ADDED", body("a", 5)) is None
    assert seen.apply_change("ADDED", body("a", 10)) == Change("a", None, "red")


def test_what_is_newer_than_a_list_stays() -> None:
    seen = picture()
    seen.apply_change("ADDED", body("a", 5))
    seen.apply_change("ADDED", body("b", 6))
    seen.apply_change("DELETED", body("b", 8))
    assert listed(seen, [body("b", 6)], 4) == []
    assert listed(seen, [body("b", 6)], 6) == [Change("a", "red", None)]
    assert as_told(seen) == {}


@dataclass
class World:
    """The real objects of a cluster, and the events in order that led to them."""

    now: dict[str, Body]
    events: list[Event]
    version: int


STEPS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(("red", "blue", "gone"))), max_size=20
)


def happen(steps: list[tuple[str, str]]) -> World:
    """Apply random steps to an empty cluster. A deleted object never returns, because each object has its own uid."""
    now: dict[str, Body] = {}
    events: list[Event] = []
    ended: set[str] = set()
    for version, (uid, what) in enumerate(steps, start=1):
        if uid in ended or (what == "gone" and uid not in now):
            continue
        if what == "gone":
            events.append(("DELETED", body(uid, version)))
            ended.add(uid)
            del now[uid]
        else:
            kind = "MODIFIED" if uid in now else "ADDED"
            now[uid] = body(uid, version, what)
            events.append((kind, now[uid]))
    return World(now, events, len(steps))


@given(steps=STEPS, data=st.data())
def test_any_stream_and_then_a_list_is_the_truth(
    steps: list[tuple[str, str]], data: st.DataObject
) -> None:
    world = happen(steps)
    heard = data.draw(
        st.lists(st.sampled_from(world.events), max_size=40) if world.events else st.just([])
    )
    seen = picture()
    changes = [
        change for kind, one in heard if (change := seen.apply_change(kind, one)) is not None
    ]
    changes += listed(seen, [*world.now.values()], world.version)
    late = data.draw(
        st.lists(st.sampled_from(world.events), max_size=10) if world.events else st.just([])
    )
    changes += [
        change for kind, one in late if (change := seen.apply_change(kind, one)) is not None
    ]
    assert as_told(seen) == {uid: one["color"] for uid, one in world.now.items()}
    assert replayed(changes) == as_told(seen)


@given(steps=STEPS, data=st.data())
def test_lists_and_events_may_overtake_one_another(
    steps: list[tuple[str, str]], data: st.DataObject
) -> None:
    """A list of some moment is taken over while events of later ones were heard already: nothing newer is lost."""
    world = happen(steps)
    moment = data.draw(st.integers(0, world.version))
    then = happen(steps[:moment])
    seen = picture()
    for kind, one in world.events:
        seen.apply_change(kind, one)
    listed(seen, [*then.now.values()], moment)
    assert as_told(seen) == {uid: one["color"] for uid, one in world.now.items()}


def replayed(changes: list[Change[str]]) -> dict[str, str]:
    """Return the objects after these changes. Each change must begin with the result of the previous one."""
    told: dict[str, str] = {}
    for change in changes:
        assert told.get(change.uid) == change.before
        assert change.before != change.after
        if change.after is None:
            del told[change.uid]
        else:
            told[change.uid] = change.after
    return told
