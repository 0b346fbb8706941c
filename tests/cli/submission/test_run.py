"""Tests of `hai run`, `validate-schema` and `describe`, which read and write yaml."""

from __future__ import annotations

import asyncio
import io
import json
import os
from pathlib import Path

import pytest

from hai.v1.task_pb2 import (
    RUN_STATE_RUNNING,
    RUN_STATE_STOPPING,
    RUN_STATE_SUSPENDING,
    RUN_STATE_TERMINATING,
    TASK_OUTCOME_FAILED,
    TASK_OUTCOME_SUCCEEDED,
    RunState,
)

GOOD = """
version: 2
name: {name}
spec:
  entrypoint: train.py
  parameters: [--title, 'a b; $(x)']
  environments: {{T: "two\\nlines"}}
resource: {{node_count: 2}}
options: {{py_venv: 'torch[bob]'}}
"""
BAD = "version: 2\nname: x\nspec: {entrypont: a.py}\nresource: {node_count: many}\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two good files and a bad one, and we stand beside them."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(GOOD.format(name=name))
    (tmp_path / "bad.yaml").write_text(BAD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_several_files_are_submitted_in_order(files: Path, hai, fake) -> None:
    done = hai("run", "a.yaml", "b.yaml", "-n", "3", "-p", "LOW")
    assert done.out == "submitted task 4 (a)\nsubmitted task 5 (b)\n"
    assert [fake.world.tasks[i].spec.resource.node_count for i in (4, 5)] == [3, 3]


def test_tasks_that_go_first_are_named_or_numbered(files: Path, hai, fake) -> None:
    hai("run", "a.yaml")
    done = hai("run", "b.yaml", "--after", "a", "--after", "1:ended")
    assert (done.code, done.out) == (0, "submitted task 5 (b)\n")
    after = [(each.task, each.outcome) for each in fake.world.tasks[5].spec.options.after]
    assert after == [(4, ""), (1, "ended")]
    assert hai("list", "id:5").out.splitlines()[1].split()[-1] == "AFTER"
    assert hai("describe", "5").out.count("outcome: ended") == 1
    assert hai("run", "b.yaml", "--name", "c", "--after", "nobody").code == 3
    assert hai("run", "b.yaml", "--name", "c", "--after", "99").code == 2
    assert max(fake.world.tasks) == 5


def test_whom_a_name_means_is_told_and_a_wrong_word_is_helped(files: Path, hai, fake) -> None:
    hai("run", "a.yaml")
    asyncio.run(fake.tasks.stop(4, TASK_OUTCOME_SUCCEEDED))
    done = hai("run", "b.yaml", "--after", "a")
    assert "after a: that is task 4, SUCCEEDED\n" in done.err
    assert "that is" not in hai("run", "b.yaml", "--name", "c", "--after", "4").err
    for word in ("a:success", "afterok:4", "4,5"):
        done = hai("run", "b.yaml", "--name", "d", "--after", word)
        assert (done.code, f"no task is named '{word}'" in done.err) == (3, True)
        assert "write TASK, TASK:failed, TASK:ended or tag:TAG, and --after again" in done.err


@pytest.mark.parametrize(
    ("run_state", "stop_code", "said"),
    [
        pytest.param(RUN_STATE_RUNNING, 0, "runs; it was not suspended", id="running"),
        pytest.param(RUN_STATE_SUSPENDING, 0, "once it has left its nodes", id="suspending"),
        pytest.param(RUN_STATE_TERMINATING, 16, "once it has left its nodes", id="leaving"),
        pytest.param(RUN_STATE_STOPPING, 0, "is being stopped, which cannot be", id="stopping"),
        pytest.param(RUN_STATE_TERMINATING, 1024, "is being stopped", id="stopped by a person"),
        pytest.param(RUN_STATE_TERMINATING, 512, "is being stopped", id="its time is over"),
    ],
)
def test_resume_says_what_will_be(
    hai, fake, run_state: RunState.ValueType, stop_code: int, said: str
) -> None:
    run = fake.world.runs[1][-1]
    run.state, run.stop_code = run_state, stop_code
    assert said in hai("resume", "1").out


def test_who_is_resumed_may_still_wait_for_others(files: Path, hai, fake) -> None:
    hai("run", "a.yaml")
    hai("run", "b.yaml", "--after", "a")
    assert hai("suspend", "b", "--delay", "1h").out == "5  b  waits for task 4 to end\n"
    assert hai("suspend", "b", "--hold").out == "5  b  held until `hai resume 5`\n"
    assert hai("resume", "b").out == "5  b  waits for task 4 to end\n"


def test_several_are_described_and_submitted_again(hai, fake, monkeypatch) -> None:
    described = hai("describe", "3", "1").out
    assert described.split("---\n") == [hai("describe", id).out for id in "31"]
    fake.finish(1, TASK_OUTCOME_FAILED, "rank 0 exited with 1")
    monkeypatch.setattr("sys.stdin", io.StringIO(described + "---\n"))
    assert hai("run", "-", "-q").out.split() == ["4", "5"]
    assert [fake.world.tasks[id].name for id in (4, 5)] == ["bad", "train"]


def test_what_a_dry_run_prints_of_several_can_be_submitted(hai, fake, tmp_path) -> None:
    (tmp_path / "e.yaml").write_text("version: 2\nname: e\nspec: {entrypoint: t.py}\n")
    printed = hai("run", str(tmp_path / "e.yaml"), "--array", "1-3", "--dry-run").out
    (tmp_path / "all.yaml").write_text(printed)
    assert hai("run", str(tmp_path / "all.yaml"), "-q").out.split() == ["4", "5", "6"]


def test_nothing_is_sent_when_one_file_is_bad(files: Path, hai, fake) -> None:
    done = hai("run", "a.yaml", "bad.yaml")
    assert (done.code, done.out) == (2, "")
    assert "entrypoint" in done.err, "the nearest match of entrypont"
    assert "line 3" in done.err
    assert "line 4" in done.err
    assert set(fake.world.tasks) == {1, 2, 3}


def test_standard_input_and_quiet(hai, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(GOOD.format(name="c")))
    assert hai("run", "-", "-q").out == "4\n"


def test_describe_round_trips_every_byte(files: Path, hai, fake, monkeypatch) -> None:
    hai("run", "a.yaml")
    text = hai("describe", "4").out
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    hai("run", "-", "--name", "again")
    first, second = fake.world.tasks[4].spec, fake.world.tasks[5].spec
    second.name = first.name
    assert first == second
    assert second.options.py_venv == "torch[bob]"


@pytest.mark.parametrize(
    ("options", "py_venv"),
    [
        pytest.param((), "jax[ada]", id="of the shell"),
        pytest.param(("--no-inherit",), "", id="none"),
        pytest.param(("--options", "py_venv=mine"), "mine", id="of the options"),
    ],
)
def test_a_file_that_names_no_environment_gets_the_active_one(
    files: Path, hai, fake, monkeypatch, options: tuple[str, ...], py_venv: str
) -> None:
    monkeypatch.setenv("HF_ENV_NAME", "jax")
    monkeypatch.setenv("HF_ENV_OWNER", "ada")
    (files / "c.yaml").write_text(GOOD.format(name="c").replace("options:", "#"))
    hai("run", "a.yaml", "c.yaml", *(o for o in options if "py_venv" not in o and o != "--options"))
    assert fake.world.tasks[4].spec.options.py_venv == "torch[bob]", "what the file says counts"
    hai("run", "c.yaml", "--name", "d", *options)
    assert fake.world.tasks[6].spec.options.py_venv == py_venv


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        pytest.param(".", "{here}", id="the current directory"),
        pytest.param("sub/../lib", "{here}/lib", id="below it"),
        pytest.param("~/bert", "{home}/bert", id="of the user"),
        pytest.param("/data", "/data", id="a whole path"),
        pytest.param("haiworkspace://bert@3", "haiworkspace://bert@3", id="a reference"),
    ],
)
def test_a_workspace_is_meant_from_here(
    files: Path, hai, fake, monkeypatch, written: str, sent: str
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    place = f"version: 2\nname: w\nspec: {{entrypoint: a.py, workspace: '{written}'}}\n"
    (files / "w.yaml").write_text(place)
    assert hai("run", "w.yaml").code == 0
    assert fake.world.tasks[4].spec.spec.workspace == sent.format(here=files, home="/home/ada")


def test_json_of_one_and_of_several(files: Path, hai) -> None:
    assert json.loads(hai("run", "a.yaml", "--json").out)["id"] == 4
    many = json.loads(hai("run", "a.yaml", "b.yaml", "--name", "z", "--json").err)
    assert many["error"]["reason"] == "CONFLICT"
    both = json.loads(hai("run", "b.yaml", "b.yaml", "--json").out)
    assert [task["name"] for task in both["tasks"]] == ["b"]


@pytest.mark.parametrize(
    ("option", "told"),
    [
        pytest.param("-q", "4\n", id="quiet"),
        pytest.param("-oyaml", "- id: 4\n", id="yaml"),
        pytest.param("--no-color", "submitted task 4 (a)\n", id="sentences"),
    ],
)
def test_what_was_submitted_is_told_where_a_later_one_is_refused(
    files: Path, hai, option: str, told: str
) -> None:
    done = hai("run", "a.yaml", "a.yaml", "b.yaml", option)
    assert done.code == 1
    assert told in done.out
    if option != "-q":
        assert done.err.splitlines()[-2].startswith("stopped at task 2 of 3, a:")


def test_follow_prints_the_log_and_exits_as_the_task(files: Path, hai, fake) -> None:
    """The fake server starts the task, prints and fails after the submission."""
    tail = fake.logs.tail

    def scripted(id: int, **options: object):
        fake.start(id, ["n1"])
        fake.print(id, "hello")
        fake.world.runs[id][-1].ranks[0].exit_code = 9
        fake.finish(id, TASK_OUTCOME_FAILED)
        return tail(id, **options)

    fake.logs.tail = scripted
    done = hai("run", "a.yaml", "-f")
    assert done.out == "submitted task 4 (a)\nhello\n"
    assert done.code == 9
    assert "FAILED" in done.err


def test_who_follows_a_task_that_does_not_start_hears_why(
    files: Path, hai, fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hai_tui.cli.output.follow._EXPLAIN_AFTER_SECONDS", 0)

    async def late(id: int, **options: object):
        fake.world.tasks[id].waiting.message = "needs 2 nodes; 0 are free"
        for _ in range(20):
            await asyncio.sleep(0)
        fake.start(id, ["n1"])
        fake.finish(id, TASK_OUTCOME_SUCCEEDED)
        return
        yield

    fake.logs.tail = late
    done = hai("run", "a.yaml", "-f")
    assert "task 4 waits: needs 2 nodes; 0 are free (hai why 4)\n" in done.err
    assert done.code == 0


def test_ctrl_c_while_following_leaves_the_task(hai, fake) -> None:
    async def interrupted(id: int, **options: object):
        raise KeyboardInterrupt
        yield

    fake.logs.tail = interrupted
    done = hai("logs", "1", "-f")
    assert done.code == 130
    assert "keeps running" in done.err
    assert fake.world.tasks[1].state == 2


def test_validate_schema(files: Path, hai) -> None:
    assert hai("validate-schema", "a.yaml").err == "a.yaml: valid\n"
    done = hai("validate-schema", "a.yaml", "bad.yaml", "--json")
    assert done.code == 2
    error = json.loads(done.err.splitlines()[-1])["error"]
    assert [v["line"] for v in error["violations"]] == [3, 3, 4]


RULES = """\
version: 2
name: x(
spec: {entrypoint: train}
resource: {node_count: 0}
services: [{name: web, type: http}]
"""


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("validate-schema",), id="validate-schema"),
        pytest.param(("run",), id="run"),
        pytest.param(("run", "--dry-run"), id="dry run"),
    ],
)
def test_every_broken_rule_is_told_with_its_place_before_anything_is_sent(
    files: Path, hai, fake, command: tuple[str, ...]
) -> None:
    (files / "rules.yaml").write_text(RULES, "utf-8")
    done = hai(*command, "rules.yaml", "--json")
    assert done.code == 2
    found = json.loads(done.err)["error"]["violations"]
    assert [(v["field"], v["line"]) for v in found] == [
        ("name", 2),
        ("spec.entrypoint", 3),
        ("resource.node_count", 4),
        ("services[0].port", 5),
    ]
    assert set(fake.world.tasks) == {1, 2, 3}


def test_options_mend_and_break_what_a_file_says(files: Path, hai, fake) -> None:
    (files / "rules.yaml").write_text(RULES.replace("http", "local"), "utf-8")
    mended = hai("run", "rules.yaml", "--name", "x", "-n", "2", "--options", "spec.entrypoint=a.py")
    assert (mended.code, fake.world.tasks[4].name) == (0, "x")
    broken = hai("run", "a.yaml", "--options", "max_retries=-1", "--json")
    [violation] = json.loads(broken.err)["error"]["violations"]
    assert violation["field"] == "options.max_retries"
    assert violation["line"] == 0, "it stands in no line of the file"


def test_a_program_is_checked_before_its_workspace_is_pushed(files: Path, hai, fake) -> None:
    (files / "a.py").write_text("")
    done = hai("python", "a.py", "--", "--name", "x(", "--array", "1-3")
    assert done.code == 2
    assert "name: 'x(-1' must be a name without parentheses" in done.err


@pytest.mark.parametrize("command", [("validate-schema",), ("run", "--dry-run")], ids=" ".join)
def test_what_has_no_effect_is_named(files: Path, hai, command: tuple[str, ...]) -> None:
    options = "options: {tags: a, sidecar: [fs], record_git_revision: true}\n"
    text = f"version: 2\nname: h\nspec: {{entrypoint: a.py}}\n{options}"
    (files / "of-hai.yaml").write_text(text, "utf-8")
    done = hai(*command, "of-hai.yaml")
    assert done.code == 0
    last = done.err.splitlines()[-1]
    assert last == "without effect here: options.record_git_revision, options.sidecar"


def test_schema_is_shipped(hai) -> None:
    assert json.loads(hai("validate-schema", "--schema").out)["properties"]["spec"]


def test_wait_times_out(hai) -> None:
    done = hai("status", "1", "--wait", "--timeout", "0.01s")
    assert done.code == 124


def test_several_are_waited_for_and_each_has_a_row(hai, fake) -> None:
    fake.finish(1, TASK_OUTCOME_SUCCEEDED)
    done = hai("status", "1", "bad", "--wait", "--no-headers", "--columns", "id,status")
    assert [line.split() for line in done.out.splitlines()] == [["1", "SUCCEEDED"], ["3", "FAILED"]]
    assert done.code == 3, "that of the first which did not succeed"
    assert hai("status", "1", "3").code == 0
    assert [t["id"] for t in json.loads(hai("status", "1", "3", "--json").out)["tasks"]] == [1, 3]
    late = hai("status", "1", "eval", "--wait", "--timeout", "0.01s")
    assert (late.code, "task 2 was not finished" in late.err) == (124, True)


def test_the_log_of_a_task_that_waits_says_why(hai) -> None:
    done = hai("logs", "2")
    assert (done.code, done.out) == (0, "")
    assert "task 2 waits: wants 4 nodes, 1 is free (hai why 2)" in done.err
    assert hai("logs", "1").err == ""


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        pytest.param(("run", "a.yaml", "--gpus", "2"), 2, id="a task file"),
        pytest.param(("exec", "true", "--", "--gpus", "1"), 1, id="a program"),
        pytest.param(("run", "a.yaml", "--options", "resource.gpu=3"), 3, id="the field"),
        pytest.param(("run", "a.yaml"), 0, id="unsaid"),
    ],
)
def test_a_task_says_that_it_needs_gpus(
    files: Path, hai, fake, line: tuple[str, ...], gpus: int
) -> None:
    assert hai(*line).code == 0
    assert fake.world.tasks[max(fake.world.tasks)].spec.resource.gpu == gpus


def test_a_directory_is_no_task_file(files: Path, hai, fake) -> None:
    (files / "dir.yaml").mkdir()
    assert "'dir.yaml' is a directory" in hai("run", "a.yaml", "dir.yaml").err
    assert set(fake.world.tasks) == {1, 2, 3}


def test_a_pipe_of_the_shell_is_as_good_as_a_file(hai) -> None:
    reading, writing = os.pipe()
    os.write(writing, GOOD.format(name="p").encode())
    os.close(writing)
    assert hai("run", f"/dev/fd/{reading}", "-q").out == "4\n"
    os.close(reading)


def test_each_fault_has_a_line_of_its_own(files: Path, hai) -> None:
    done = hai("validate-schema", "bad.yaml")
    assert done.err.splitlines() == [
        "hai: bad.yaml is not valid:",
        "  spec.entrypoint: is missing (line 3, column 7)",
        "  spec.entrypont: is not a known key; did you mean entrypoint or "
        "entrypoint_executable? (line 3, column 8)",
        "  resource.node_count: must be a whole number, not the text 'many' (line 4, column 24)",
    ]


def test_an_env_file_may_begin_with_a_byte_order_mark(files: Path, hai, fake) -> None:
    """Editors on Windows write one. It does not belong to the first name."""
    (files / "env").write_bytes(b"\xef\xbb\xbfA=1\r\nB=2\r\n")
    done = hai("run", "a.yaml", "--env-file", "env", "--dry-run")
    assert done.code == 0
    assert "\ufeff" not in done.out + done.err
    assert "A: '1'" in done.out


def test_a_bad_line_of_an_env_file_is_named(files: Path, hai) -> None:
    (files / "env").write_text("A=1\nbad line\n")
    done = hai("run", "a.yaml", "--env-file", "env")
    assert done.code == 2
    assert "env, line 2: 'bad line' is not NAME=VALUE" in done.err


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        pytest.param("resorce.gpu=1", "resorce.gpu: is not a known key; did you mean resource?", id="part"),
        pytest.param("max_retry=2", "options.max_retry: is not a known key; did you mean max_retries?", id="option"),
        pytest.param("node_count=2", "it belongs at resource.node_count", id="elsewhere"),
    ],
)  # fmt: skip
def test_a_mistyped_option_is_answered_with_the_nearest_one(
    files: Path, hai, assignment: str, told: str
) -> None:
    done = hai("run", "a.yaml", "--options", assignment)
    assert (done.code, told in done.err) == (2, True)


@pytest.mark.parametrize("options", [[], ["--json"], ["--array", "1-2"]], ids=" ".join)
def test_warnings_of_the_server_are_printed_to_stderr(
    hai, fake, files: Path, options: list[str]
) -> None:
    fake.world.warnings.append("save_within is too short")
    done = hai("run", "a.yaml", *options)
    assert done.code == 0
    assert done.err.count("warning: save_within is too short") == max(1, len(options))
    assert "warning: save_within" not in done.out
