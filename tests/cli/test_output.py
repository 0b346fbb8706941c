"""Results are plain in a pipe, decorated on a terminal, and stable for programs."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai.client.text.formatting import size_text
from hai.v1 import (
    artifact_pb2,
    dataset_pb2,
    image_pb2,
    message_service_pb2,
    port_pb2,
    storage_pb2,
    task_pb2,
    user_pb2,
)
from hai.v1.server_service_pb2 import ServerInfo
from hai.v1.task_service_pb2 import (
    DryRunTaskResponse,
    ExplainTaskResponse,
    Flip,
    NodeNumbers,
    Preemption,
    QuotaUse,
    TaskAhead,
    Victim,
)
from hai.v1.task_spec_pb2 import TaskSpec
from hai_tui.formatting import values as formatting
from hai_tui.formatting.documents import to_dict
from hai_tui.formatting.table import Column, brief, plain, printable, width
from hai_tui.views.tasks import RANKS

ON_TERMINAL = """
import asyncio, sys
from hai.client.fake.server import FakeClient
from hai.v1.task_spec_pb2 import ProgramSpec, TaskSpec
from hai_tui.cli.main import main
fake = FakeClient(nodes=["n0"])
spec = TaskSpec(version=2, name="a[bold]b", spec=ProgramSpec(entrypoint="x.py"))
asyncio.run(fake.tasks.create(spec))
fake.start(1, ["n0"])
main(sys.argv[1:] or ["list"], connect=lambda profile: fake)
"""


def on_terminal(line: str = "list", **variables: str) -> str:
    """What the program prints when stdout is a terminal."""
    reader, writer = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", **variables}
    command = [sys.executable, "-c", ON_TERMINAL, *line.split()]
    done = subprocess.run(command, stdout=writer, env=env, check=True)
    os.close(writer)
    assert done.returncode == 0
    with os.fdopen(reader, "rb") as terminal:
        return terminal.read1(65536).decode()


def plainly(printed: str) -> str:
    """Without what makes it bold."""
    return re.sub(r"\x1b\[[0-9;]*m", "", printed)


def test_terminals_get_colours_unless_refused() -> None:
    assert "\x1b[32mRUNNING" in on_terminal()
    for name in ("NO_COLOR", "TERM"):
        plain_text = on_terminal(**{name: "1" if name == "NO_COLOR" else "dumb"})
        assert "\x1b[32m" not in plain_text
        assert "a[bold]b" in plain_text


ASKED = """
import asyncio, sys
from hai.client.fake.server import FakeClient
from hai.v1.task_spec_pb2 import AfterSpec, OptionsSpec, ProgramSpec, TaskSpec
from hai_tui.cli.main import main

fake = FakeClient(nodes=["n0"])
for name in ("a", "b", "c"):
    after = OptionsSpec(after=[AfterSpec(task=1)] if name == "c" else [])
    spec = TaskSpec(version=2, name=name, spec=ProgramSpec(entrypoint="x.py"), options=after)
    asyncio.run(fake.tasks.create(spec))
sys.exit(main(sys.argv[1:], connect=lambda profile: fake))
"""


STREAMS = ("stdin", "stdout", "stderr")


def until_it_reads(pid: int) -> None:
    """Wait until the process reads. A signal before that would be handled too late."""
    looks = 0
    while looks < 10:
        time.sleep(0.01)
        sleeps = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
        looks = looks + 1 if sleeps else 0


@contextmanager
def asked(line: str) -> Iterator[tuple[subprocess.Popen[bytes], FileIO, bytes]]:
    """A command at a terminal that waits for an answer: its process, its terminal, and what it has said."""
    reader, writer = pty.openpty()
    command, streams = [sys.executable, "-c", ASKED, *line.split()], dict.fromkeys(STREAMS, writer)
    with subprocess.Popen(command, **streams) as hai, os.fdopen(reader, "r+b", 0) as terminal:
        told = b""
        while b"[y/N]" not in told:
            told += terminal.read(4096)
        until_it_reads(hai.pid)
        try:
            yield hai, terminal, told
        finally:
            hai.kill()
    os.close(writer)


@pytest.mark.parametrize("line", ["stop a b", "container delete a"])
def test_ctrl_c_at_a_question_ends_it_at_once(line: str) -> None:
    with asked(line) as (hai, terminal, _):
        hai.send_signal(signal.SIGINT)
        assert hai.wait(10) == 130
        assert b"interrupted" in terminal.read(4096)


def test_who_waits_for_a_task_is_told_before_it_is_stopped() -> None:
    with asked("stop a") as (hai, terminal, told):
        assert b"tasks that wait for it to end: 3 c (alice)\r\nstop 1 a (alice)? [y/N]" in told
        terminal.write(b"n\n")
        assert hai.wait(10) == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param("list", "ID NAME USER STATUS PRIORITY NODES AGE WHY", id="a list"),
        pytest.param("list -o wide", "PRIORITY NODES GROUP RUNS", id="all that is wanted"),
        pytest.param("list --columns id,runs,group,why", "ID RUNS GROUP WHY", id="named"),
        pytest.param("status 1", "PRIORITY NODES GROUP RUNS", id="one thing is shown whole"),
    ],
)
def test_what_matters_least_goes_where_a_list_has_no_room(line: str, told: str) -> None:
    head = plainly(on_terminal(line, COLUMNS="60", NO_COLOR="1")).splitlines()[0]
    assert told in " ".join(head.split())


def test_lists_fit_a_narrow_terminal() -> None:
    lines = plainly(on_terminal(COLUMNS="60", NO_COLOR="1")).splitlines()
    assert [len(line) <= 60 for line in lines] == [True, True]


@pytest.mark.parametrize("columns", ["60", "20"])
def test_narrow_terminals_keep_what_matters(columns: str) -> None:
    head, row = on_terminal(COLUMNS=columns, NO_COLOR="1").splitlines()[:2]
    assert plainly(head).split()[:3] == ["ID", "NAME", "USER"]
    assert "a[bold]b" in row


def test_narrow_terminals_get_no_blank_lines() -> None:
    lines = on_terminal(COLUMNS="20", NO_COLOR="1").splitlines()
    assert len(lines) == 2
    assert lines[1].startswith(" 1  a[bold]b")


def test_pipes_get_no_escapes_and_no_wrapping(hai, fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    fake.world.tasks[1].name = "n" * 300 + "\x1b[2J\n"
    out = hai("list").out
    assert len(out.splitlines()) == 4
    assert "\x1b" not in out
    assert "n" * 300 + "\\x1b[2J\\n" in out


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1))
def test_plain_tables_keep_one_line_a_row_and_columns_aligned(rows: list[tuple[str, str]]) -> None:
    columns = [Column("a", lambda i, now: ""), Column("b", lambda i, now: "")]
    safe = [[printable(cell) for cell in row] for row in rows]
    lines = plain(columns, safe, headers=True).split("\n")
    assert len(lines) == len(rows) + 2
    start = max(width(cell) for cell in ["A", *(row[0] for row in safe)]) + 2
    for line, row in zip(lines[1:], safe, strict=False):
        if row[1].strip():
            before = line[: len(line.rstrip()) - len(row[1].rstrip())]
            assert width(before) == start


@pytest.mark.parametrize(
    ("value", "places"),
    [
        pytest.param("abc", 3, id="ascii"),
        pytest.param("任务", 4, id="wide"),
        pytest.param("e\u0301", 1, id="combining"),
    ],
)
def test_how_wide_text_is(value: str, places: int) -> None:
    assert width(value) == places


def test_json_has_every_field_by_its_proto_name() -> None:
    task = task_pb2.Task(id=2**60, state=2, run=task_pb2.Run(ranks=[task_pb2.Rank(exit_code=0)]))
    facts = to_dict(task)
    assert list(facts) == [field.name for field in task_pb2.Task.DESCRIPTOR.fields]
    assert facts["id"] == 2**60
    assert (facts["state"], facts["outcome"]) == ("RUNNING", None)
    assert facts["run"]["ranks"][0]["exit_code"] == 0
    assert facts["create_time"] is None
    assert to_dict(task_pb2.Rank())["exit_code"] is None
    assert to_dict(user_pb2.Token(scope=1))["scope"] == "ALL"


MESSAGES = [task_pb2.Task, task_pb2.Run, task_pb2.Rank, task_pb2.Waiting, task_pb2.Goodput]
MESSAGES += [ExplainTaskResponse, DryRunTaskResponse, Flip, NodeNumbers, Preemption, QuotaUse]
MESSAGES += [user_pb2.Share, user_pb2.Grant, image_pb2.Image, image_pb2.ImageCheck]
MESSAGES += [artifact_pb2.Artifact, artifact_pb2.TaskArtifact]
MESSAGES += [dataset_pb2.Dataset, message_service_pb2.Message]
MESSAGES += [port_pb2.Port, image_pb2.Registry, storage_pb2.Mount, storage_pb2.MountRule]


@pytest.mark.parametrize("message", MESSAGES)
def test_json_fields_are_documented(message: type[task_pb2.Task]) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    words = set(re.findall(r"[a-z_]+", manual))
    assert {field.name for field in message.DESCRIPTOR.fields} <= words


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        pytest.param(0, "0s", id="nothing"),
        pytest.param(-5, "0s", id="clock skew"),
        pytest.param(59.9, "59s", id="seconds"),
        pytest.param(60, "1m", id="a minute"),
        pytest.param(61, "1m1s", id="two units"),
        pytest.param(3600 * 25 + 59, "1d1h", id="days"),
        pytest.param(86400 + 5, "1d", id="no unit is skipped"),
    ],
)
def test_how_spans_are_written(seconds: float, shown: str) -> None:
    assert formatting.span(seconds) == shown


@pytest.mark.parametrize(
    ("bytes", "shown"),
    [
        pytest.param(1, "1 B", id="one"),
        pytest.param(999, "999 B", id="three digits"),
        pytest.param(1000, "0.977 KiB", id="no fourth"),
        pytest.param(1536, "1.5 KiB", id="a half"),
        pytest.param(150 << 30, "150 GiB", id="a data set"),
    ],
)
def test_how_sizes_are_written(bytes: int, shown: str) -> None:
    assert size_text(bytes) == shown


@given(st.integers(0, 10**8))
def test_spans_are_read_as_they_are_written(seconds: int) -> None:
    shown = formatting.span(seconds)
    assert formatting.span(formatting.seconds(shown)) == shown
    assert 0 <= seconds - formatting.seconds(shown) < max(60.0, seconds / 24)


@pytest.mark.parametrize("bad", ["", "x", "10x", "-5", "1h 2m", "m"])
def test_what_is_no_span(bad: str) -> None:
    with pytest.raises(click.BadParameter):
        formatting.seconds(bad)


def test_how_moments_are_read() -> None:
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    assert formatting.past_time("10m", now.timestamp()) == datetime(
        2026, 11, 21, 11, 50, tzinfo=UTC
    )
    assert formatting.deadline("1d", now.timestamp()) == datetime(2026, 11, 22, 12, tzinfo=UTC)
    assert formatting.past_time("2026-11-21T11:08", 0.0) == datetime(
        2026, 11, 21, 11, 8, tzinfo=UTC
    )


def test_letters_that_the_encoding_lacks_are_written_out() -> None:
    program = ON_TERMINAL.replace("a[bold]b", "任务")
    env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=env)
    assert done.returncode == 0
    assert b"\\u4efb\\u52a1" in done.stdout


@pytest.mark.parametrize("closed", ["stdin", "stdout", "stderr"])
def test_closed_streams_are_no_fault_of_ours(closed: str) -> None:
    program = f"import sys; sys.{closed} = None" + ON_TERMINAL.replace('"list"', '"stop", "1"')
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


class Terminal(io.StringIO):
    """The standard input of a person."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("line", "answer", "stopped"),
    [
        pytest.param("stop 1", "", [1], id="one own task: no question"),
        pytest.param("stop 2", "n\n", [], id="somebody else's"),
        pytest.param("stop 2", "y\n", [2], id="somebody else's, agreed"),
        pytest.param("stop 1 2", "n\n", [], id="several"),
        pytest.param("stop 1 2 --yes", "", [1, 2], id="several, --yes"),
    ],
)
def test_what_asks_before_it_stops_tasks(line, answer, stopped, hai, fake, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    done = hai(*line.split())
    assert [id for id in (1, 2) if fake.world.tasks[id].state == 4] == stopped
    assert done.code == (0 if stopped else 1)


@pytest.mark.parametrize(("nodes", "said"), [(1, "1 node "), (2, "2 nodes ")])
def test_who_is_ahead_is_counted_as_people_count(nodes: int, said: str, hai, fake) -> None:
    async def explain(id: int) -> ExplainTaskResponse:
        waiting = task_pb2.Waiting(reason="NOT_ENOUGH_NODES")
        ahead = [TaskAhead(id=1, name="a", user="u", node_count=nodes, rule="runs already")]
        return ExplainTaskResponse(waiting=waiting, ahead=ahead)

    fake.tasks.explain = explain
    assert said in hai("why", "2").out


def test_a_dry_run_is_yaml_with_comments(hai, fake, tmp_path) -> None:
    async def dry_run(spec: TaskSpec) -> DryRunTaskResponse:
        return DRY_RUN

    fake.tasks.dry_run = dry_run
    file = tmp_path / "t.yaml"
    file.write_text("version: 2\nname: t\nspec:\n  entrypoint: t.py\n", "utf-8")
    done = hai("run", str(file), "--dry-run")
    assert done.code == 0
    assert [line for line in done.out.splitlines() if line.startswith("#")] == [
        "# would start when task 9 has left",
        "#   task 9 of bob leaves n0, n1: 400 node-seconds of work are lost, 660 node-seconds with its restart",
        "#   task 8 of eve is leaving n2 already",
        "#   quota HIGH: 1 of 4 nodes held now, 3.5 with this task",
        "#   quota in total: 0 of 0 nodes held now, 0 with this task",
        "# ahead of it:",
        "#   7  u  1 node  moved ahead by its owner",
        "# what would help:",
        "#   ask for 1 node",
    ]
    found = json.loads(hai("run", str(file), "--dry-run", "--json").out)
    assert (found["name"], found["dry_run"]["outcome"]) == ("t", "PROMISED")
    assert "task" not in found["dry_run"]


def test_a_dry_run_that_could_never_start_fails(hai, fake, tmp_path) -> None:
    async def dry_run(spec: TaskSpec) -> DryRunTaskResponse:
        return DryRunTaskResponse(outcome="NEVER", message="could never start: too large")

    fake.tasks.dry_run = dry_run
    file = tmp_path / "t.yaml"
    file.write_text("version: 2\nname: t\nspec:\n  entrypoint: t.py\n", "utf-8")
    assert hai("run", str(file), "--dry-run").code == 1


DRY_RUN = DryRunTaskResponse(
    outcome="PROMISED",
    message="would start when task 9 has left",
    victims=[
        Victim(id=9, user="bob", nodes=["n0", "n1"], lost_node_seconds=400, cost_node_seconds=660),
        Victim(id=8, user="eve", nodes=["n2"], asked=True),
    ],
    quotas=[QuotaUse(priority=30, allowed=4, held=1, after=3.5), QuotaUse(priority=-1)],
    ahead=[TaskAhead(id=7, user="u", node_count=1, rule="moved ahead by its owner")],
    flips=[Flip(change="FEWER_NODES", message="ask for 1 node")],
)


def test_watch_in_a_pipe_prints_a_line_per_change(hai, fake) -> None:
    watch = fake.tasks.watch

    async def twice(filter: str, **options: object):
        stream = watch(filter)
        yield await anext(stream)
        fake.suspended(1)
        yield await anext(stream)

    fake.tasks.watch = twice
    out = hai("list", "--watch", "--columns", "id,status").out
    assert out.splitlines() == ["ID  STATUS", " 2  WAITING_INIT", " 1  RUNNING", " 1  SUSPENDED"]
    fake.world.tasks[1].state = 2
    lines = hai("list", "--watch", "--json").out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [2, 1, 1]


@pytest.mark.parametrize(
    ("code", "meaning", "told"),
    [
        pytest.param(2, "exit code 2", "2", id="a number says itself"),
        pytest.param(127, "exit code 127: not found", "127 (not found)", id="and what it means"),
        pytest.param(137, "killed by SIGKILL", "137 (killed by SIGKILL)", id="a signal"),
        pytest.param(0, "succeeded", "0", id="success"),
        pytest.param(None, "its node was lost", "its node was lost", id="none"),
    ],
)
def test_an_exit_code_is_said_once(code: int | None, meaning: str, told: str) -> None:
    rank = task_pb2.Rank(exit_code=code, exit_meaning=meaning)
    (column,) = (column for column in RANKS.columns if column.key == "exit")
    assert column.value(rank, 0.0) == told


def test_when_the_certificate_of_a_server_expires(hai, monkeypatch) -> None:
    assert "tls" not in hai("version").out
    known = ServerInfo(version="1", protocol="hai.v1", cluster="c", launcher="process")
    known.certificate_expire_time.FromSeconds(1_800_000_000)

    async def info() -> ServerInfo:
        return known

    monkeypatch.setattr(hai.client.server, "info", info)
    assert "tls       certificate expires 2027-01-15 08:00:00\n" in hai("version").out
    facts = json.loads(hai("version", "--json").out)
    assert facts["server"]["certificate_expire_time"] == "2027-01-15T08:00:00Z"


LONG = "rank 3 on node-17 exited with code 137: killed by the kernel because its memory was used up"


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("rank 0 exited with 3", "rank 0 exited with 3", id="short"),
        pytest.param("no space left; delete files; try again", "no space left", id="two parts"),
        pytest.param("first\nsecond", "first", id="two lines"),
        pytest.param(LONG, "rank 3 on node-17 exited with code...", id="behind a word"),
        pytest.param("x" * 200, "x" * 37 + "...", id="one word"),
        pytest.param("磁" * 50, "磁" * 18 + "...", id="wide letters"),
    ],
)
def test_a_list_has_one_short_reason(sentence: str, shown: str) -> None:
    assert brief(sentence) == shown


def test_the_list_is_short_and_status_tells_the_rest(hai, fake) -> None:
    fake.world.tasks[3].reason = LONG
    row = next(line for line in hai("list").out.splitlines() if " bad " in line)
    assert row.endswith("rank 3 on node-17 exited with code...")
    assert LONG in hai("status", "3").out
    assert json.loads(hai("list", "--json").out)["tasks"][0]["reason"] == LONG
