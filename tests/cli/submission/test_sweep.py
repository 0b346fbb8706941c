"""Tests of `--array`, `--each` and `--at-most`, which make several tasks with their own names and variables."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from hai.v1.task_pb2 import TaskOutcome

TASK = "version: 2\nname: fit\nspec: {entrypoint: t.py, parameters: [--lr, '{LR}', '{x}', '{HAI_ARRAY_INDEX}']}\n"
FAILED = TaskOutcome.TASK_OUTCOME_FAILED
MANY = ",".join(map(str, range(300)))
ONE = "version: 2\nname: {name}\nspec: {{entrypoint: t.py}}\n"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fit.yaml").write_text(TASK)
    for name in "abc":
        (tmp_path / f"{name}.yaml").write_text(ONE.format(name=name))
    monkeypatch.chdir(tmp_path)


def submitted(fake) -> dict[str, dict[str, str]]:
    """Return the variables of each submitted task by its name."""
    tasks = [task for number, task in fake.world.tasks.items() if number > 3]
    return {task.name: dict(task.spec.spec.environments) for task in tasks}


@pytest.mark.parametrize(
    ("array", "indexes"),
    [
        pytest.param("3", [3], id="one"),
        pytest.param("0-2", [0, 1, 2], id="a range"),
        pytest.param("0-90:45", [0, 45, 90], id="steps"),
        pytest.param("7,1-2,1", [7, 1, 2], id="a list"),
        pytest.param("1-2%1", [1, 2], id="one at a time"),
    ],
)
def test_numbers(hai, fake, array: str, indexes: list[int]) -> None:
    done = hai("run", "fit.yaml", "--array", array)
    found = submitted(fake)
    assert done.code == 0
    assert [int(name.removeprefix("fit-")) for name in found] == indexes
    assert {variables["HAI_ARRAY_SIZE"] for variables in found.values()} == {str(len(indexes))}
    assert [int(variables["HAI_ARRAY_INDEX"]) for variables in found.values()] == indexes


@pytest.mark.parametrize(
    "array", ["", "a", "1-", "-1", "1--2", "1%x", "1-2-3", "1,,2", "1-5:", "1-5:0", "2-1"]
)
def test_what_is_no_array(hai, fake, array: str) -> None:
    done = hai("run", "fit.yaml", "--array", array)
    assert (done.code, "is not as 1-10" in done.err, submitted(fake)) == (2, True, {})


@pytest.mark.parametrize("array", ["1-3%0", "1-3%", "1-3%00"])
def test_an_array_of_which_none_may_run(hai, fake, array: str) -> None:
    done = hai("run", "fit.yaml", "--array", array)
    assert (done.code, submitted(fake)) == (2, {})
    assert f"'{array}': at least one at a time; without %, all at once" in done.err


def test_every_combination_of_values(hai, fake) -> None:
    done = hai("run", "fit.yaml", "--each", "LR=0.1,0.01", "--each", "SEED=1,2", "-e", "A=b")
    assert done.out.splitlines()[0] == "submitted task 4 (fit-0.1-1)"
    found = submitted(fake)
    assert list(found) == ["fit-0.1-1", "fit-0.1-2", "fit-0.01-1", "fit-0.01-2"]
    assert found["fit-0.01-1"] == {
        **{"A": "b", "LR": "0.01", "SEED": "1"},
        **{"HAI_ARRAY_INDEX": "3", "HAI_ARRAY_SIZE": "4"},
    }
    arguments = list(fake.world.tasks[6].spec.spec.parameters)
    assert arguments == ["--lr", "0.01", "{x}", "3"]


@pytest.mark.parametrize("values", ["a b,c", "x/y,z", ",a", "a,é"])
def test_values_that_are_no_names_are_counted(hai, fake, values: str) -> None:
    hai("run", "fit.yaml", "--each", f"X={values}")
    assert list(submitted(fake)) == ["fit-1", "fit-2"]
    assert [variables["X"] for variables in submitted(fake).values()] == values.split(",")


def test_a_value_may_have_a_comma(hai, fake) -> None:
    hai("run", "fit.yaml", "--each", r"X=0.9\,0.99,a\b,\,")
    assert [variables["X"] for variables in submitted(fake).values()] == ["0.9,0.99", r"a\b", ","]


def test_all_have_a_tag_in_common_and_are_told_together(hai, fake) -> None:
    done = hai("run", "fit.yaml", "--array", "1-3", "--tag", "mine")
    tags = {tuple(task.tags) for number, task in fake.world.tasks.items() if number > 3}
    (own,) = tags
    assert own[0] == "mine"
    assert done.err.count(f"hai list --tag {own[1]}") == 1
    assert "hai status 4" not in done.err
    assert len(hai("list", "-q", "--tag", own[1]).out.split()) == 3
    again = hai("run", "fit.yaml", "--array", "4-5", "-q")
    assert again.out.split() == ["7", "8"]
    assert own[1] not in fake.world.tasks[7].tags
    answer = json.loads(hai("run", "a.yaml", "--array", "1-2", "--json").out)
    assert [task["name"] for task in answer["tasks"]] == ["a-1", "a-2"]


@pytest.mark.parametrize(
    ("how", "count"),
    [
        pytest.param("-q", 60, id="names"),
        pytest.param("-o name", 60, id="the same"),
        pytest.param("-q -p 2", 10, id="a page"),
        pytest.param("-q -ps 7", 7, id="a size"),
    ],
)
def test_a_list_of_names_leaves_none_out(hai, fake, how: str, count: int) -> None:
    hai("run", "fit.yaml", "--array", "1-60", "--tag", "mine")
    assert len(hai.line(f"hai list --tag mine {how}").out.split()) == count


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(("fit.yaml", "--array", "1-5%2"), id="as Slurm has it"),
        pytest.param(("fit.yaml", "--array", "1-5", "--at-most", "2"), id="an array"),
        pytest.param(("fit.yaml", "--each", "X=1,2,3,4,5", "--at-most", "2"), id="values"),
    ],
)
def test_so_many_at_a_time(hai, fake, argv: tuple[str, ...]) -> None:
    hai("run", *argv, "--after", "1")
    after = [
        [(first.task, first.outcome) for first in task.spec.options.after]
        for number, task in fake.world.tasks.items()
        if number > 3
    ]
    first = (1, "")
    assert after == [[first], [first], *([first, (n, "ended")] for n in (4, 5, 6))]


def first(task) -> list[tuple[int, str]]:
    return [(each.task, each.outcome) for each in task.spec.options.after]


def test_a_task_waits_for_all_of_a_sweep(hai, fake) -> None:
    hai("run", "fit.yaml", "--array", "1-3", "--tag", "mine")
    fake.world.tasks[5].user = "bob"
    hai("run", "a.yaml", "--after", "tag:mine", "--after", "2:failed", "--after", "tag:mine")
    assert first(fake.world.tasks[7]) == [(4, ""), (6, ""), (2, "failed")]


def test_what_was_submitted_again_counts_instead_of_what_failed(hai, fake) -> None:
    hai("run", "fit.yaml", "--array", "1-3", "--tag", "mine")
    fake.start(5, ["n1"])
    fake.finish(5, FAILED, "rank 0 exited with 1")
    hai("run", "fit.yaml", "--array", "2", "--tag", "mine")
    hai("run", "a.yaml", "--after", "tag:mine:ended")
    assert first(fake.world.tasks[8]) == [(4, "ended"), (6, "ended"), (7, "ended")]


@pytest.mark.parametrize(
    ("after", "code", "words"),
    [
        pytest.param("tag:mine", 2, "hai status --wait $(hai list -q --tag mine)", id="too many"),
        pytest.param("tag:none", 3, "no task of yours has the tag 'none'", id="nobody"),
        pytest.param("afterok:4:5", 3, "TASK:ended or tag:TAG", id="as Slurm has it"),
    ],
)
def test_what_cannot_be_waited_for(
    hai, fake, monkeypatch, after: str, code: int, words: str
) -> None:
    monkeypatch.setattr("hai_tui.cli.submission.dependencies._MAX_DEPENDENCIES", 10)
    hai("run", "fit.yaml", "--array", "1-11", "--tag", "mine")
    done = hai("run", "a.yaml", "--after", after)
    assert (done.code, words in done.err, len(_new(fake))) == (code, True, 11)


def test_files_go_one_after_the_other(hai, fake) -> None:
    hai("run", "a.yaml", "b.yaml", "c.yaml", "--at-most", "1")
    after = {t.name: [first.task for first in t.spec.options.after] for t in _new(fake)}
    assert after == {"a": [], "b": [4], "c": [5]}


def _new(fake) -> list:
    return [task for number, task in fake.world.tasks.items() if number > 3]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        pytest.param(("--array", "1-1001"), "1001 tasks; at most 1000", id="too many"),
        pytest.param(("--array", "0-999999999"), "at most 1000", id="far too many"),
        pytest.param(("--each", "A=1,2", "--array", "1"), "--array or --each", id="both"),
        pytest.param(("--each", "A"), "is not as LR=0.1,0.01", id="no values"),
        pytest.param(("--each", "A=1,2", "--each", "A=3"), "--each A is there twice", id="twice"),
        pytest.param(("--each", "HAI_ARRAY_INDEX=5"), "each task gets that", id="our own"),
        pytest.param(
            [word for name in "ABC" for word in ("--each", f"{name}={MANY}")],
            "that is 27000000 tasks; at most 1000",
            id="combinations that fill the memory",
        ),
        pytest.param(("--array", "1-2", "-f"), "these are several", id="followed"),
    ],
)
def test_what_cannot_be_meant(hai, fake, argv: tuple[str, ...], words: str) -> None:
    done = hai("run", "fit.yaml", *argv)
    assert (done.code, words in done.err, submitted(fake)) == (2, True, {})


def test_a_program_of_the_command_line(hai, fake) -> None:
    Path("train.py").write_text("")
    hai("python", "train.py", "--seed", "{SEED}", "--", "--each", "SEED=1,2")
    assert [list(task.spec.spec.parameters) for task in _new(fake)] == [
        ["--seed", "1"],
        ["--seed", "2"],
    ]


def test_a_value_is_put_in_as_it_is(hai, fake) -> None:
    hai("run", "fit.yaml", "--each", "LR={x},{HAI_ARRAY_SIZE}", "--each", "x=1")
    assert [list(task.spec.spec.parameters)[1:3] for task in _new(fake)] == [
        ["{x}", "1"],
        ["{HAI_ARRAY_SIZE}", "1"],
    ]


def test_also_in_arguments_of_roles(hai, fake) -> None:
    roles = "roles: [{name: master, count: 1, parameters: [--lr, '{LR}']}, {name: w, count: 1}]\n"
    Path("roles.yaml").write_text(ONE.format(name="gang") + "resource: {node_count: 2}\n" + roles)
    hai("run", "roles.yaml", "--each", "LR=1,2")
    assert [task.spec.roles[0].parameters[1] for task in _new(fake)] == ["1", "2"]


def test_a_sweep_that_is_refused_midway_says_what_is_there(hai, fake) -> None:
    hai("run", "a.yaml", "--name", "fit-3")
    done = hai("run", "fit.yaml", "--array", "1-5")
    part, until, why = done.err.splitlines()[:3]
    assert (done.code, list(submitted(fake))) == (1, ["fit-3", "fit-1", "fit-2"])
    assert part.startswith("2 tasks were created: hai list --tag fit-")
    assert until == "stopped at task 3 of 5, fit-3:"
    assert why.startswith("hai: ")
    hai("stop", *hai("list", "-q", "--tag", part.split("--tag ")[1].split()[0]).out.split(), "3")
    assert hai("run", "fit.yaml", "--array", "1-2").code == 0


@pytest.mark.parametrize(
    ("how", "told"),
    [
        pytest.param([], "submitted task 4 (fit-1)\nsubmitted task 5 (fit-2)\n", id="in words"),
        pytest.param(["-q"], "4\n5\n", id="as numbers"),
    ],
)
def test_ctrl_c_tells_also_of_the_task_that_was_under_way(
    hai, fake, monkeypatch, how: list[str], told: str
) -> None:
    create = fake.tasks.create

    async def interrupted(spec, **more):
        if spec.name == "fit-2":
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(0)
        return await create(spec, **more)

    monkeypatch.setattr(fake.tasks, "create", interrupted)
    done = hai("run", "fit.yaml", "--array", "1-5", *how)
    assert (done.code, done.out) == (130, told)
    assert list(submitted(fake)) == ["fit-1", "fit-2"]


def test_a_sweep_that_is_stopped_starts_nothing_more(hai, fake, monkeypatch) -> None:
    stopped, stop = [], fake.tasks.stop

    async def noted(id, *how):
        stopped.append(id)
        return await stop(id, *how)

    monkeypatch.setattr(fake.tasks, "stop", noted)
    hai("run", "fit.yaml", "--array", "1-3", "--at-most", "1")
    assert hai("stop", "fit-2", "fit-1", "fit-3").code == 0
    assert stopped == [6, 5, 4]
