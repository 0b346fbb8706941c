"""Commands warn about unknown names on stderr, and still do their work."""

from __future__ import annotations

import asyncio

import pytest

from hai.client.errors import Denied
from hai.v1.user_pb2 import User

_ELSE = "check the spelling; `hai user list` lists all users"


@pytest.fixture
def people(hai):
    """A group of nodes, a user group, and who is in it."""
    hai.client.add_node("n7", group="big")
    asyncio.run(hai.client.users.create(User(name="ada", groups=["vision"])))
    return hai


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("nodes -g bigg", "no node belongs to the group bigg now: did you mean big?"),
        ("queue -g bigg", "no node belongs to the group bigg now: did you mean big?"),
        ("list -g bigg", "no node belongs to the group bigg now: did you mean big?"),
        ("list group:big,bigg -a", "no node belongs to the group bigg now: did you mean big?"),
        ("list -u adda", "there is no user adda: did you mean ada?"),
        ("list user:me,zoe -state:finished tag:x", f"there is no user zoe: {_ELSE}"),
        ("quota list zoe", f"there is no user or user group zoe: {_ELSE}"),
        ("quota set visoin 4 --user-group -g big", "user group visoin now: did you mean vision?"),
        ("right list zoe", f"there is no user or user group zoe: {_ELSE}"),
        ("right grant visoin manage_tasks --user-group", "visoin now: did you mean vision?"),
        ("share list visoin", "nobody is in the user group visoin now: did you mean vision?"),
        ("share list -g bigg", "no node belongs to the group bigg now: did you mean big?"),
        ("share set visoin --weight 2", "the user group visoin now: did you mean vision?"),
        ("message send hi --to visoin --user-group", "visoin now: did you mean vision?"),
        ("user create bo --group visoin", "nobody else is in the user group visoin: did you"),
        ("user update alice --group visoin", "nobody else is in the user group visoin: did you"),
        ("audit --actor adda", "there is no user adda: did you mean ada?"),
    ],
)
def test_an_unknown_name_is_questioned(people, line, told):
    done = people.line(f"hai {line}")
    assert (done.code, told in done.err) == (0, True)


@pytest.mark.parametrize(
    "line",
    [
        "nodes -g big",
        "queue -g big",
        "list -g big -u ada,me",
        "quota list ada",
        "quota list vision",
        "right list vision",
        "share list vision -g big",
        "share set vision --weight 2",
        "message send hi --to vision --user-group",
        "user create bo --group speech",
        "audit --actor ada",
    ],
)
def test_a_known_name_is_not_questioned(people, line):
    done = people.line(f"hai {line}")
    assert done.code == 0
    assert "there is no" not in done.err
    assert "did you mean" not in done.err
    assert "written so" not in done.err


def test_a_queue_that_is_not_all_of_it_is_told(hai, monkeypatch):
    assert "the first" not in hai("queue").err
    monkeypatch.setattr("hai_tui.cli.output.output.QUEUE_TASKS", 1)
    assert "only the first 1 are listed; `hai list state:queued -a` lists all" in hai("queue").err


def test_who_may_not_list_users_hears_nothing(people, monkeypatch):
    async def denied() -> None:
        raise Denied("for operators")

    monkeypatch.setattr(people.client.users, "list", denied)
    done = people("list", "-u", "zoe")
    assert (done.code, done.err) == (0, "no tasks match\n")
