"""The filter line: which tasks match, which part the server filters, and the messages for invalid terms."""

from __future__ import annotations

from contextlib import suppress

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from hai.v1.task_pb2 import (
    TASK_OUTCOME_FAILED,
    TASK_STATE_FINISHED,
    TASK_STATE_RUNNING,
    TASK_STATE_WAITING_INIT,
    Rank,
    Run,
    Task,
)
from hai_tui.feed.task_row import TaskRow
from hai_tui.tasks.filter import KEYS, FilterError, parse

NOW = 1_800_000_000.0
FAILED = Task(
    id=7, name="bert large", user="ada", group="gpu", tags=["sweep"], priority=30, node_count=4,
    state=TASK_STATE_FINISHED, outcome=TASK_OUTCOME_FAILED, run_count=2, failure_count=1,
    create_time=Timestamp(seconds=int(NOW) - 3600), reason="rank 0 exited with 1",
    run=Run(ranks=[Rank(node="n3")]),
)  # fmt: skip
RUNS = Task(
    id=8,
    name="gpt",
    user="bob",
    state=TASK_STATE_RUNNING,
    create_time=Timestamp(seconds=int(NOW) - 3 * 86400),
    starred=True,
    run=Run(ranks=[Rank(), Rank(silent_since_time=Timestamp(seconds=int(NOW) - 40))]),
)
WAITS = Task(id=9, name="eval", user="ada", state=TASK_STATE_WAITING_INIT, awaited=[8, 12])


@pytest.mark.parametrize(
    ("line", "ids"),
    [
        pytest.param("", {7, 8, 9}, id="nothing is everything"),
        pytest.param("status:failed", {7}, id="status"),
        pytest.param("state:running,queued", {8, 9}, id="values are ored"),
        pytest.param("status:failed user:me", {7}, id="terms are anded"),
        pytest.param("user:bob", {8}, id="user"),
        pytest.param("-user:bob", {7, 9}, id="negated"),
        pytest.param("!status:finished", {8, 9}, id="negated with !"),
        pytest.param("age:<2d", {7}, id="younger, with a colon"),
        pytest.param("age>2d id:7,8", {8}, id="older"),
        pytest.param("priority:high", {7}, id="level by name"),
        pytest.param("priority>=30", {7}, id="level by number"),
        pytest.param("nodes>3", {7}, id="nodes"),
        pytest.param("name:bert*", {7}, id="name with a star"),
        pytest.param("name:er", {7}, id="part of a name"),
        pytest.param("tag:swe*", {7}, id="tag"),
        pytest.param("starred:yes", {8}, id="starred"),
        pytest.param("after:8", {9}, id="who waits for a task"),
        pytest.param("after:1,12", {9}, id="who waits for one of them"),
        pytest.param("-after:8 id:7,9", {7}, id="who does not wait for it"),
        pytest.param("node:n3", {7}, id="node"),
        pytest.param("node:n*", {7}, id="nodes whose names begin so"),
        pytest.param('why:"exited with"', {7}, id="why, quoted"),
        pytest.param("why:silent", {8}, id="an agent is silent"),
        pytest.param("BERT", {7}, id="a word"),
        pytest.param("sweep", {7}, id="a word of the tags"),
        pytest.param("/^g.t$/", {8}, id="regular expression"),
        pytest.param('"bert large"', {7}, id="words in quotes"),
    ],
)
def test_matches(line: str, ids: set[int]) -> None:
    found = parse(line, me="ada").among(map(TaskRow, (FAILED, RUNS, WAITS)), NOW)
    assert {facts.id for facts in found} == ids


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param("statsu:failed", "did you mean status?", id="key"),
        pytest.param("status:faild", "did you mean failed?", id="status"),
        pytest.param("age:<yesterday", "write 90s, 10m, 2h30m or 2d", id="span"),
        pytest.param("nodes>many", "nodes must be a number, not 'many'", id="number"),
        pytest.param("priority:hihg", "did you mean high?", id="level"),
        pytest.param("user>bob", "user cannot be compared with >", id="comparison"),
        pytest.param("user:", "user: a value is missing", id="no value"),
        pytest.param("/(/", "not a regular expression", id="regex"),
        pytest.param("after:train", "after must be a number", id="after a name"),
        pytest.param("starred:maybe", "starred must be true or false", id="yes or no"),
    ],
)
def test_what_means_nothing_is_told_with_the_nearest_word(line: str, told: str) -> None:
    with pytest.raises(FilterError) as error:
        parse(line)
    assert told in str(error.value)


@pytest.mark.parametrize("sign", ["", "-"])
def test_what_would_be_looked_for_without_end_is_given_up(sign: str) -> None:
    endless = parse(f"{sign}/(x+)+y/")
    assert not endless.problem
    long = TaskRow(Task(id=1, name="x" * 60))
    assert [each.id for each in endless.among([long] * 3, NOW)] == [1] * 3 * len(sign)
    assert "takes too long" in endless.problem
    assert not parse("/(x+)+y/").problem


@pytest.mark.parametrize(
    ("line", "server"),
    [
        pytest.param("status:failed user:me tag:a,b", "outcome:failed user:ada tag:a,b", id="all"),
        pytest.param("status:failed,running", "", id="two kinds of status are matched here"),
        pytest.param("bert -user:bob user:b*", "", id="what it may understand otherwise is left"),
        pytest.param("age:<2d priority:high", "age<172860s priority:30", id="times with a margin"),
    ],
)
def test_what_is_asked_of_the_server(line: str, server: str) -> None:
    assert parse(line, me="ada").server == server


@given(
    st.text(max_size=40) | st.from_regex(rf"-?({'|'.join(KEYS)})[:<>=]+[\w\"*,/]*", fullmatch=True)
)
def test_any_line_is_a_filter_or_an_error(line: str) -> None:
    with suppress(FilterError):
        parse(line).among([TaskRow(FAILED)], NOW)


async def test_the_server_takes_what_it_is_asked(client) -> None:
    for line in ("status:failed", "status:held", "user:me", "tag:a,b", "age:<2d", "priority:high",
                 "starred:no", "id:1,2", "after:1,2",
                 "group:gpu", "type:jupyter", "priority>=30", "status:cancelled"):  # fmt: skip
        await client.tasks.list(filter=parse(line, me="admin").server)


@pytest.mark.parametrize(
    ("earlier", "later", "narrower"),
    [
        pytest.param("ber", "bert", True, id="a word grows"),
        pytest.param("bert", "bert user:me", True, id="a term more"),
        pytest.param("", "status:failed", True, id="the first term"),
        pytest.param("bert", "ber", False, id="a word shrinks"),
        pytest.param("-ber", "-bert", False, id="a negated word grows"),
        pytest.param("1", "12", True, id="part of an id grows"),
        pytest.param("name:be", "name:ber", True, id="part of a name grows"),
        pytest.param("name", "name:be", False, id="a word becomes a key"),
        pytest.param("why", "why:after", False, id="a word becomes another key"),
        pytest.param("name:be", "name:ber,x", False, id="another name"),
        pytest.param("user:b", "user:bo", False, id="another user"),
        pytest.param("be*", "be*r", False, id="a star"),
        pytest.param("status:run", "status:running", False, id="a value grows"),
        pytest.param("a b", "a", False, id="a term less"),
    ],
)
def test_which_filter_leaves_only_things_out(earlier: str, later: str, narrower: bool) -> None:
    with suppress(FilterError):
        assert (parse(later).remaining_after(parse(earlier)) is not None) is narrower
