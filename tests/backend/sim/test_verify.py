"""`hai simulate LOG --verify` with equal, different, incomplete and invalid logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hai_backend.domain.node import Group
from hai_backend.domain.scheduling.plan import Plan
from hai_backend.domain.scheduling.snapshot import Snapshot
from hai_backend.scheduler import Policy, SchedulerCache
from hai_backend.scheduler.policy.rules import Rules
from hai_backend.scheduler.recorded_input import (
    Begin,
    Pass,
    PassInput,
    apply,
    begin_line,
    pass_line,
)
from hai_backend.scheduler.testing import NOW, nodes, queued
from hai_backend.sim.cli.command import main

BEGIN = begin_line(Begin(Policy(), Snapshot(0.0, (), ()), "0.1.0"))


def passes() -> list[Pass]:
    """Return passes in which two tasks are submitted and start, one after the other."""
    cache = SchedulerCache(Policy())
    rules = Rules({"default": Group("default")})
    given = [
        PassInput(NOW, rules, tuple(nodes(2)), tasks=(queued(1),)),
        PassInput(NOW + 1, gone=(1,), tasks=(queued(2, 2),)),
    ]
    return [Pass(shown, apply(cache, shown)) for shown in given]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "decisions.jsonl"
    path.write_text(BEGIN + "".join(pass_line(done) for done in passes()))
    return path


def test_verifying_an_equal_log_exits_with_0(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(log), "--verify"]) == 0
    assert capsys.readouterr() == (
        f"{log}: 2 passes and 2 decisions compared, all as recorded\n",
        "",
    )


def test_the_first_different_pass_is_reported_in_full(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = passes()
    wrong = Pass(first.shown, Plan(0, (), first.plan.wake_at))
    log.write_text(BEGIN + pass_line(wrong) + pass_line(second))
    assert main([str(log), "--verify"]) == 1
    found = capsys.readouterr().out.splitlines()
    assert found[0] == f"{log}: 1 passes and 0 decisions compared, the last pass differs"
    assert found[1] == f"{log}:2: the pass at {NOW} decides otherwise"
    assert '  replayed: {"kind": "Start", "task": 1, "nodes": ["n00"]' in "\n".join(found)
    assert found[-1] == f"{log}: it was recorded by version 0.1.0"


def test_one_bit_is_a_difference(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, _ = passes()
    text = pass_line(Pass(first.shown, Plan(0, first.plan.decisions, NOW + 0.1)))
    log.write_text(BEGIN + text)
    assert main([str(log), "--verify", "--json", "-"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["equal"] is False
    assert found["logs"][0]["difference"]["recorded"]["wake_at"] == NOW + 0.1


def test_half_a_last_line_is_left_out(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text(log.read_text()[:-5])
    assert main([str(log), "--verify"]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith("not complete and was left out")


NO_LINE = "is not JSON, as each line of a log of decisions is"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "LOG: holds no beginning of a log, so nothing can be", id="empty"),
        pytest.param("a,b\n", "LOG:1: is not JSON", id="text"),
        pytest.param('{\n"format": "hai.snapshot"}\n', f"LOG:1: {NO_LINE}", id="snapshot"),
        pytest.param("\xff\n", "LOG:1: is not text in UTF-8", id="bytes"),
        pytest.param("{}\n", "LOG:1.shown: is missing", id="object"),
        pytest.param(pass_line(passes()[0]), "LOG:1: comes before the beginning", id="late"),
        pytest.param(BEGIN.replace(" 1,", " 2,", 1), "LOG:1: is 'hai.decisions' 2;", id="later"),
        pytest.param('{"format": "hai.decisions", "version": 1}\n', "LOG:1.policy: is", id="half"),
        pytest.param(BEGIN.replace("staying", "x"), "LOG:1: x: there is no such", id="policy"),
    ],
)
def test_a_file_that_is_not_a_log_is_rejected(
    log: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_bytes(text.encode("latin-1"))
    assert main([str(log), "--verify"]) == 2
    assert capsys.readouterr().err.replace(str(log), "LOG").startswith(f"hai: {message}")


def test_other_options_are_rejected(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(log), "--verify", "--nodes", "3", "--packed"]) == 2
    assert "--nodes: has no meaning with --verify" in capsys.readouterr().err
    assert main(["--verify"]) == 2
