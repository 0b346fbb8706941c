"""Tests of `hai python|bash|exec`: arguments arrive unchanged; modes; environments."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hai.client.taskfile.spec import read_spec
from hai_tui.cli.main import main

ODD = [
    pytest.param("a b", id="blank"),
    pytest.param("", id="empty"),
    pytest.param("it's", id="single quote"),
    pytest.param('say "hi"', id="double quotes"),
    pytest.param("$(x) `y` $HOME", id="substitution"),
    pytest.param("a;b|c&d>e", id="operators"),
    pytest.param("two\nlines\ttab", id="newline"),
    pytest.param("(a) [b] {c} * ?", id="brackets"),
    pytest.param("\\n\\", id="backslash"),
    pytest.param("--help", id="our own option"),
    pytest.param("-n", id="our own short option"),
    pytest.param("name=值", id="unicode"),
]

SHOW = """
import json, os, sys
names = [n for n in os.environ if n.startswith(("HFAI", "MARSV2", "SIMULATE", "MASTER", "X_"))]
print(json.dumps({"argv": sys.argv[1:], "env": {n: os.environ[n] for n in names},
                  "rank": os.environ["RANK"], "world": os.environ["WORLD_SIZE"]}))
sys.exit(7)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a program, and we stand in it."""
    (tmp_path / "show.py").write_text(SHOW)
    (tmp_path / "run.sh").write_text("exec python3 show.py\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def here(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hai_tui.cli.main", *argv], capture_output=True, text=True
    )


def test_runs_here_and_passes_arguments_and_exit_code(place: Path) -> None:
    odd = [str(p.values[0]) for p in ODD]
    done = here("python", "show.py", *odd)
    assert (done.returncode, done.stderr) == (7, "")
    said = json.loads(done.stdout)
    assert said["argv"] == odd
    assert (said["rank"], said["world"], said["env"]["HFAI_SIMULATE"]) == ("0", "1", "1")
    assert said["env"]["MARSV2_WHOLE_LIFE_STATE"] == "0"


def test_simulates_with_options_after_plus_plus(place: Path) -> None:
    done = here("python", "show.py", "x", "++", "-ss", "30", "-ls", "4", "-e", "X_A=b c=d")
    said = json.loads(done.stdout)
    assert said["argv"] == ["x"]
    assert said["env"]["SIMULATE_SUSPEND"] == "30"
    assert said["env"]["MARSV2_WHOLE_LIFE_STATE"] == "4"
    assert said["env"]["X_A"] == "b c=d"
    assert done.returncode == 7


@pytest.mark.parametrize("odd", ODD)
def test_submits_arguments_unchanged(place: Path, hai, fake, odd: str) -> None:
    done = hai("python", "show.py", "first", odd, "--", "--name", "t", "-e", f"V={odd}")
    assert done.code == 0, done.err
    spec = fake.world.tasks[4].spec
    assert list(spec.spec.parameters) == ["first", odd]
    assert spec.spec.environments["V"] == odd
    assert spec.spec.workspace == str(place)
    assert spec.resource.node_count == 1


@pytest.mark.parametrize("odd", ODD)
def test_dry_run_round_trips(place: Path, hai, fake, odd: str) -> None:
    done = hai("python", "show.py", odd, "--", "-e", f"V={odd}", "--dry-run")
    spec = read_spec(done.out + "\n")
    assert list(spec.spec.parameters) == [odd]
    assert spec.spec.environments["V"] == odd
    assert set(fake.world.tasks) == {1, 2, 3}, "nothing is submitted"
    assert "nothing was submitted" in done.err


@pytest.mark.parametrize("more", [[], ["++"], ["--"], ["--", "--dry-run"]], ids=" ".join)
@pytest.mark.parametrize(("command", "file"), [("exec", "./dos.sh"), ("bash", "dos.sh")])
def test_dos_line_ends_are_told_before_anything_is_run_or_sent(
    place: Path, hai, fake, command: str, file: str, more: list[str]
) -> None:
    (place / "dos.sh").write_bytes(b"#!/bin/bash\r\necho hi\r\n")
    (place / "dos.sh").chmod(0o755)
    done = hai(command, file, *more)
    assert done.code == 2
    assert "dos.sh has DOS line ends" in done.err
    assert "nothing was run or sent" in done.err
    assert set(fake.world.tasks) == {1, 2, 3}


def test_a_python_program_may_have_dos_line_ends(place: Path, hai, fake) -> None:
    (place / "dos.py").write_bytes(b"\xef\xbb\xbf#!/usr/bin/python3\r\nprint(1)\r\n")
    assert hai("python", "dos.py", "--").code == 0


def test_options_of_a_submission(place: Path, hai, fake, monkeypatch) -> None:
    monkeypatch.setenv("FROM_SHELL", "x y")
    (place / "more.env").write_text("# a comment\nA=1 2\n\nB='q'\n")
    line = "-n 2 -g big#z -p high -i img -e FROM_SHELL -e A=3 --env-file more.env --tag t --name n"
    done = hai("bash", "run.sh", "--", *line.split(), "--options", "max_retries=2",
               "--options", "resource.memory=8", "--options", "py_venv=a[b]")  # fmt: skip
    assert done.out == "submitted task 4 (n)\n"
    spec = fake.world.tasks[4].spec
    assert (spec.resource.node_count, spec.resource.group, spec.priority) == (2, "big#z", 30)
    assert (spec.resource.image, spec.resource.memory, spec.options.max_retries) == ("img", 8, 2)
    assert spec.options.py_venv == "a[b]"
    assert dict(spec.spec.environments) == {"FROM_SHELL": "x y", "A": "3", "B": "'q'"}
    assert list(spec.options.tags) == ["t"]


def test_the_environment_of_the_shell_is_inherited(place: Path, hai, fake, monkeypatch) -> None:
    monkeypatch.setenv("HF_ENV_NAME", "torch")
    monkeypatch.setenv("HF_ENV_OWNER", "bob")
    assert "torch[bob]" in hai("python", "show.py", "--").err
    assert fake.world.tasks[4].spec.options.py_venv == "torch[bob]"
    assert "torch" not in hai("python", "show.py", "--", "--no_inherit", "--name", "b").err
    assert fake.world.tasks[5].spec.options.py_venv == ""


@pytest.mark.parametrize(
    ("kind", "file", "expected"),
    [
        pytest.param("python", "show.py", ("show.py", False, ["x"]), id="python file"),
        pytest.param("python", "tool", ("python3", True, ["-u", "tool", "x"]), id="no suffix"),
        pytest.param("bash", "run.sh", ("run.sh", False, ["x"]), id="script"),
        pytest.param("bash", "tool", ("bash", True, ["tool", "x"]), id="script without suffix"),
        pytest.param("exec", "tool", ("./tool", True, ["x"]), id="program here"),
        pytest.param("exec", "env", ("env", True, ["x"]), id="program on PATH"),
    ],
)  # fmt: skip
def test_what_runs(place: Path, hai, fake, kind: str, file: str, expected: object) -> None:
    (place / "tool").write_text("")
    hai(kind, file, "x", "--")
    program = fake.world.tasks[4].spec.spec
    found = (program.entrypoint, program.entrypoint_executable, list(program.parameters))
    assert found == expected


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("python show.py ++ -n 2", id="submission option in a simulation"),
        pytest.param("python show.py -- -ss 3", id="simulation option in a submission"),
        pytest.param("python show.py -- -e NOT_SET_ANYWHERE", id="variable that is not set"),
        pytest.param("python show.py -- -e =x", id="variable without a name"),
        pytest.param("python show.py -- --options max_retires=1", id="unknown option key"),
        pytest.param("python show.py -- -n 0", id="no nodes"),
        pytest.param("python missing.py -- -n 1", id="missing file"),
    ],
)
def test_refused_before_anything_is_sent(place: Path, hai, fake, line: str) -> None:
    done = hai(*line.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("hai: ")
    assert set(fake.world.tasks) == {1, 2, 3}


def test_unknown_option_key_is_answered_with_the_nearest(place: Path, hai) -> None:
    assert "max_retries" in hai("python", "show.py", "--", "--options", "max_retires=1").err


def test_a_name_that_is_taken_says_nothing_of_success(place: Path, hai) -> None:
    done = hai("python", "show.py", "--", "--name", "train")
    assert (done.code, done.out) == (1, "")
    assert "taken" in done.err


def test_blank_in_the_directory(tmp_path: Path, monkeypatch, hai) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "x.py").write_text("")
    monkeypatch.chdir(tmp_path / "a b")
    assert "spaces" in hai("python", "x.py", "--").err


def test_arguments_that_are_not_text_run_here_and_are_refused_for_there(place: Path, hai) -> None:
    assert hai("python", "show.py", "\udcff", "--").code == 2
    done = here("python", "show.py", "\udcff")
    assert json.loads(done.stdout)["argv"] == ["\udcff"]


def test_help_belongs_to_us_only_in_front() -> None:
    assert main(["python", "--help"]) == 0


def test_options_in_a_script_are_not_passed_over_in_silence(hai, place) -> None:
    (place / "job.slurm").write_text("#!/bin/bash\n#PBS -l nodes=2\nhostname\n")
    done = hai("bash", "job.slurm", "--", "-n", "2")
    assert done.code == 0
    assert "#PBS lines in job.slurm are not read; give the options after --" in done.err
    assert "are not read" not in hai("bash", "run.sh", "--").err


@pytest.mark.parametrize("kind", ["python", "bash", "exec"])
@pytest.mark.parametrize("more", [[], ["--", "--name", "x"]], ids=["here", "submitted"])
def test_a_notebook_is_told_how_it_is_executed(
    place: Path, capsys: pytest.CaptureFixture[str], kind: str, more: list[str]
) -> None:
    (place / "my study.ipynb").write_text("{}")
    assert main([kind, "my study.ipynb", *more]) == 2
    told = capsys.readouterr().err
    line = "hai exec python3 -m hai_jupyter.run_notebook 'my study.ipynb' 'my study.out.ipynb'"
    assert line in " ".join(told.split())
