"""The command: what it runs, what it writes, and its error messages."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hai_backend.scheduler.policy.policy import Policy
from hai_backend.sim.cli.command import main
from hai_backend.sim.report.metrics import metrics

LINES = ("a,,v,0,60,8,1,,,,ann,30", "b,,v,30,60,16,2,,,,bob,10")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(fakes, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*argv: object) -> tuple[int, str, str]:
        code = main([str(word) for word in argv], engine=fakes.engine)
        return code, *capsys.readouterr()

    return call


def test_a_trace_is_replayed_and_shown_in_a_table(run: Run, fakes, csv) -> None:
    code, out, err = run(csv(*LINES), "--nodes", 2, "--gpus-per-node", 8, "--packed")
    assert (code, err) == (0, "")
    assert "JCT mean, h" in out
    assert fakes.replays == [(2, (2, 8, True), Policy(), "default")]


def test_every_trace_runs_on_every_cluster_under_every_policy(
    run: Run, fakes, csv, tmp_path: Path
) -> None:
    files = [tmp_path / "a.toml", tmp_path / "b.json", tmp_path / "c.yaml"]
    for file, text in zip(files, ("x=1", '{"x": 1}', "x: 1"), strict=True):
        file.write_text(text.replace("x", "restart_seconds"))
    policies = [word for file in files for word in ("--policy", file)]
    traces = (csv(*LINES, name="one.csv"), csv(*LINES, name="two.csv"))
    assert run(*traces, "--nodes", 2, "--nodes", 3, *policies)[0] == 0
    assert [label for *_, label in fakes.replays] == [
        f"{trace}, {policy}, {nodes} nodes"
        for trace in ("one", "two")
        for policy in "abc"
        for nodes in (2, 3)
    ]
    assert all(policy == Policy(restart_seconds=1) for _, _, policy, _ in fakes.replays)


def test_policies_of_one_name_are_told_apart_by_their_paths(
    run: Run, fakes, csv, tmp_path: Path
) -> None:
    files = [tmp_path / "a" / "p.toml", tmp_path / "b" / "p.toml"]
    for file in files:
        file.parent.mkdir()
        file.write_text("restart_seconds = 1")
    path = csv(*LINES)
    assert run(path, path, "--nodes", 2, "--policy", files[0], "--policy", files[1])[0] == 0
    assert [label for *_, label in fakes.replays] == [str(file) for file in files]


def test_the_figures_of_an_only_result_stand_at_the_top(run: Run, csv, serial, tmp_path) -> None:
    out = tmp_path / "out.json"
    path = csv(*LINES)
    assert run(path, "--nodes", 2, "--time-scale", 2, "--json", out)[0] == 0
    found = json.loads(out.read_text())
    (result,) = found["results"]
    assert found["trace"] == str(path)
    assert (found["gpus_per_node"], found["packed"], found["time_scale"]) == (8, False, 2.0)
    assert (result["label"], result["policy"], result["nodes"]) == ("default", "default", 2)
    assert found["jct_mean_h"] == result["jct_mean_h"] > 0
    assert set(metrics(serial([], 1, "x"))) <= set(found)


def test_figures_of_several_results_are_only_in_the_list(run: Run, csv) -> None:
    code, out, _ = run(csv(*LINES), "--nodes", 2, "--nodes", 3, "--json", "-")
    found = json.loads(out)
    assert code == 0
    assert [result["nodes"] for result in found["results"]] == [2, 3]
    assert "jct_mean_h" not in found


def test_a_report_is_written(run: Run, csv, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert run(csv(*LINES), "--nodes", 2, "--report", page)[0] == 0
    assert page.read_text().startswith("<!doctype html>")


def test_passes_are_timed_on_a_made_up_cluster(run: Run, fakes) -> None:
    code, out, _ = run("--synthetic", "nodes=100, users=5", "--json", "-")
    assert code == 0
    assert json.loads(out) == {
        "synthetic": {
            "nodes": 100,
            "waiting": 100_000,
            "running": 5_000,
            "users": 5,
            "groups": 20,
        },
        "cold_s": 0.5,
        "steady_p50_ms": 2.0,
        "steady_p99_ms": 9.0,
    }
    assert fakes.timed[0]["nodes"] == 100


def test_times_of_passes_are_printed_as_lines(run: Run) -> None:
    assert run("--synthetic", "nodes=100")[1].splitlines()[0].split() == ["cold_s", "0.500"]


def test_skipped_rows_are_reported(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("JobID|Submit|Start|End|NNodes\n1|0|1|2|1\n1.batch|0|1|2|1\n")
    assert run(path, "--nodes", 1)[2] == f"{path}: left out 1: steps of jobs\n"


def test_all_invalid_options_are_reported_at_once(run: Run, fakes, tmp_path: Path) -> None:
    code, out, err = run(
        *(
            tmp_path,
            "--nodes",
            "0",
            "--nodes",
            "x",
            "--gpus-per-node",
            "1.5",
            "--time-scale",
            "nan",
        ),
        *("--format", "xls", "--policy", tmp_path / "no.toml", "--json", tmp_path / "no" / "x"),
        *("--report", "-"),
    )
    assert (code, out, fakes.replays) == (2, "", [])
    assert err.replace(str(tmp_path), "DIR").splitlines() == [
        "hai: 9 things are not valid:",
        "  TRACE: DIR: is a directory; name a file",
        "  --policy: DIR/no.toml: no such file",
        "  --json: DIR/no/x: there is no directory DIR/no; make it first",
        "  --report: is written to a file; name one, such as report.html",
        "  --nodes: '0' is not a whole number from 1",
        "  --nodes: 'x' is not a whole number from 1",
        "  --gpus-per-node: '1.5' is not a whole number from 1",
        "  --time-scale: 'nan' is not a number above 0; 5 lets the jobs come five times as fast",
        "  --format: no format 'xls'; there are csv, sacct, swf, snapshot, decisions",
    ]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param([], "TRACE: missing; name a trace, or give --synthetic", id="nothing"),
        pytest.param(
            ["x", "--synthetic", "nodes=1"], "TRACE: has no meaning with --synthetic", id="both"
        ),
        pytest.param(
            ["--synthetic", "nods=1,users=0,groups=x"],
            "--synthetic: nods: no such number; did you mean nodes? there are nodes, waiting, running, users, groups; "
            "users: '0' is not a whole number from 1; groups: 'x' is not a whole number from 1",
            id="wrong numbers",
        ),
        pytest.param(["--nods", "1"], "No such option '--nods'", id="unknown option"),
        pytest.param(["--nodes"], "requires an argument", id="no value"),
    ],
)
def test_wrong_options(run: Run, argv: list[str], said: str) -> None:
    code, _, err = run(*argv)
    assert code == 2
    assert said in err


def test_all_invalid_files_are_reported_at_once(run: Run, fakes, csv, tmp_path: Path) -> None:
    policy, odd = tmp_path / "p.toml", tmp_path / "p.ini"
    policy.write_text("restart_second = 1")
    odd.write_text("")
    broken = tmp_path / "p.json"
    broken.write_text("[1]")
    code, _, err = run(
        *(csv("a,,v,x,1,1,1,,,,u,", name="bad.csv"), csv(*LINES, "c,,v,31,1,24,3,,,,u,")),
        *("--nodes", 1, "--nodes", 2, "--policy", policy, "--policy", odd, "--policy", broken),
    )
    assert (code, fakes.replays) == (2, [])
    assert err.replace(f"{tmp_path}/", "").splitlines() == [
        "hai: 6 things are not valid:",
        "  bad.csv:2, column submit_s: 'x' is not a number of seconds; write one such as 3600 or 0.5",
        "  p.toml: no such setting restart_second",
        "  p.ini: cannot be read: its name must end in .toml, .json, .yml or .yaml",
        "  p.json: cannot be read: it must hold names and values, such as `restart_seconds = 60`",
        "  jobs.csv: job 2 (submitted at 30 s, 16 GPUs) needs 2 nodes, the cluster has 1; give --nodes 3 or leave out "
        "these 2 jobs",
        "  jobs.csv: job 3 (submitted at 31 s, 24 GPUs) needs 3 nodes, the cluster has 2; give --nodes 3 or leave out "
        "this job",
    ]


def test_a_single_problem_is_printed_on_one_line(run: Run, csv) -> None:
    assert run(csv(*LINES), "--nodes", 1)[2].startswith("hai: /")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_files_that_may_not_be_touched(run: Run, csv, tmp_path: Path) -> None:
    secret = csv(*LINES)
    secret.chmod(0)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    err = run(secret, "--nodes", 1, "--json", closed / "x")[2]
    assert "you may not read it" in err
    assert "you may not write there" in err


def test_ctrl_c_ends_it_quietly(csv, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> object:
        raise KeyboardInterrupt

    assert main([str(csv(*LINES)), "--nodes", "2"], engine=interrupted) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_full_disk_is_reported(run: Run, csv) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    code, _, err = run(csv(*LINES), "--nodes", 2, "--json", "/dev/full")
    assert code == 1
    assert err == "hai: /dev/full: No space left on device\n"
