"""Groups that runs connect, and the part of a snapshot that a pass over one group depends on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hai_backend.domain.node import Group
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import Ending, ShareRow
from hai_backend.scheduler.explain.trial_pass import select_group
from hai_backend.scheduler.group_links import GroupLinks, find_connected
from hai_backend.scheduler.policy.rules import Rules
from hai_backend.scheduler.testing import node, queued, quota, running, snap

LOW = Priority.LOW
GROUPS = [Group(name) for name in "ghk"]
SHARES = [ShareRow("s", name, frozenset("u"), 1) for name in "ghk"]
STATE = snap(
    node("a", group="g"), node("b", group="h"), node("c", group="k"),
    running(1, "a b gone", group="g"), queued(2, group="h"), queued(3, group="k"), running(4, "c", group="k"),
    *GROUPS, *SHARES, *(quota("u", LOW, 1, name) for name in "ghk"),
    endings=tuple(Ending(queued(9, group=name), 5.0) for name in "ghk"), inactive_users=frozenset("z"),
)  # fmt: skip


@pytest.mark.parametrize(("group", "names"), [("g", "gh"), ("h", "gh"), ("k", "k"), ("x", "")])
def test_a_selected_group_includes_the_groups_connected_by_runs(group: str, names: str) -> None:
    found = select_group(STATE, group)
    assert [node.group for node in found.nodes] == list(names)
    assert [task.id for task in found.tasks] == {"gh": [1, 2], "k": [3, 4], "": []}[names]
    assert list(found.groups) == list(names)
    assert [row.group for row in found.quotas] == list(names)
    assert [row.group for row in found.shares] == list(names)
    assert [ending.task.group for ending in found.endings] == list(names)
    assert (found.inactive_users, found.now) == (STATE.inactive_users, STATE.now)


@pytest.mark.parametrize(
    ("links", "names"),
    [
        ([], "a"),
        ([{"a", "b"}], "ab"),
        ([{"b", "c"}], "a"),
        ([{"b", "c"}, {"d", "c"}, {"a", "b"}], "abcd"),
    ],
)
def test_connections_are_transitive(links: list[set[str]], names: str) -> None:
    assert find_connected(["a"], links) == set(names)


def test_a_node_that_is_moved_back_connects_no_groups() -> None:
    run, home, links = running(1, "a", group="g"), node("a", group="g"), GroupLinks()
    links.rebuild([run], {"a": replace(home, group="h")})
    assert links.connected("g") == {"g", "h"}
    links.rebuild([run], {"a": home})
    assert links.connected("g") == {"g"}


BEFORE = Rules({"g": Group("g")}, (quota("u", LOW, 1, "h"),), frozenset("z"), (SHARES[2],))


@pytest.mark.parametrize(
    ("now", "names"),
    [
        pytest.param(BEFORE, [], id="nothing"),
        pytest.param(replace(BEFORE, inactive_users=frozenset()), [], id="users are no group's"),
        pytest.param(replace(BEFORE, groups={}), ["g"], id="a group is gone"),
        pytest.param(replace(BEFORE, groups={"x": Group("x")}), ["g", "x"], id="a new group"),
        pytest.param(replace(BEFORE, groups={"g": Group("g", packed=True)}), ["g"], id="a changed group"),
        pytest.param(replace(BEFORE, quotas=()), ["h"], id="a quota row is gone"),
        pytest.param(replace(BEFORE, quotas=(*BEFORE.quotas, quota("u", LOW, 1, "x"))), ["x"], id="a new one"),
        pytest.param(replace(BEFORE, shares=()), ["k"], id="a share is gone"),
    ],
)  # fmt: skip
def test_changed_groups_of_new_rules(now: Rules, names: list[str]) -> None:
    assert sorted(set(now.changed_groups(BEFORE))) == names
    assert Rules.from_snapshot(STATE) == Rules(
        STATE.groups, STATE.quotas, STATE.inactive_users, STATE.shares
    )
