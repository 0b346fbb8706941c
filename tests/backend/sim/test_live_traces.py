"""Traces from a live server: a snapshot of its scheduler, and the log of its passes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from hai_backend.domain.errors import Invalid
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Plan
from hai_backend.domain.scheduling.snapshot import Ending, Snapshot
from hai_backend.domain.scheduling.snapshot_json import format_lines
from hai_backend.scheduler import Policy
from hai_backend.scheduler.recorded_input import Begin, Pass, PassInput, begin_line, pass_line
from hai_backend.scheduler.testing import NOW, node, nodes, queued, running, snap
from hai_backend.sim.cli.command import main
from hai_backend.sim.pass_timing import time_passes
from hai_backend.sim.traces.reader import Trace, load

DAY = 86_400.0


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., Path]:
    def store(snapshot: Snapshot) -> Path:
        path = tmp_path / "cluster.json"
        path.write_text("".join(format_lines(snapshot)))
        return path

    return store


def of(path: Path, **options: int) -> Trace:
    return load(path, gpus_per_node=8, **options)  # type: ignore[arg-type]


def test_running_and_queued_tasks_are_submitted(stored: Callable[..., Path]) -> None:
    tasks = [
        queued(1, 2, Priority.AUTO, user="ada", name="x-#"),
        running(2, "n00 n01", Priority.HIGH),
        queued(3, 3, gpu=6, user=""),
        queued(4, held=True),
        queued(5, custom_rank=math.nan),
        queued(6, user="eve"),
    ]
    given = replace(snap(nodes(3), *tasks), inactive_users=frozenset({"eve"}))
    trace = of(stored(given))
    assert trace.format == "snapshot"
    assert [(j.user, j.name, j.submit, j.gpus, j.nodes, j.priority.name) for j in trace.jobs] == [
        ("u2", "", 0.0, 0, 2, "HIGH"),
        ("ada", "x-#", 0.0, 0, 2, "NORMAL"),
        ("unknown", "", 0.0, 18, 3, "NORMAL"),
    ]
    assert trace.skipped == {
        "tasks that their users hold": 1,
        "tasks that nobody could start": 1,
        "tasks of inactive users": 1,
    }


def test_run_times_are_drawn_from_the_history_of_the_kind(stored: Callable[..., Path]) -> None:
    kinds = {"short": 300.0, "long": DAY}
    endings = [Ending(queued(i, user="u", name=n), s) for i in range(300) for n, s in kinds.items()]
    tasks = [queued(i, user="u", name=n) for i, n in enumerate(sorted(kinds) * 200, 1)]
    given = replace(snap(nodes(1), *tasks), endings=tuple(endings))
    drawn = of(stored(given)).jobs
    for name, seconds in kinds.items():
        found = median(job.duration for job in drawn if job.name == name)
        assert seconds / 1.5 < found < seconds * 1.5
    assert max(job.duration for job in drawn) <= 30 * DAY


def test_the_time_that_a_task_has_run_counts(stored: Callable[..., Path]) -> None:
    endings = tuple(Ending(queued(i, user="u"), DAY) for i in range(300))
    runs = [
        running(i, f"n{i}", user="u", since=0.9 * DAY, run_seconds=0.05 * DAY) for i in range(99)
    ]
    given = replace(snap([node("n1")], *runs), endings=endings)
    assert median(job.duration for job in of(stored(given)).jobs) < 0.3 * DAY


def test_equal_seeds_draw_equal_run_times(stored: Callable[..., Path]) -> None:
    path = stored(snap(nodes(1), *(queued(i) for i in range(1, 9))))
    one, same, other = of(path, seed=1), of(path, seed=1), of(path, seed=2)
    assert one == same
    assert [job.duration for job in one.jobs] != [job.duration for job in other.jobs]


def test_a_snapshot_is_replayed_and_its_passes_are_timed(
    stored: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(snap(nodes(4), running(1, "n00"), *(queued(i) for i in range(2, 30))))
    assert main([str(path), "--nodes", "4", "--seed", "7", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == 29
    assert main(["--synthetic", str(path), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["synthetic"], found["nodes"], found["waiting"]) == (str(path), 4, 28)
    assert found["steady_p50_ms"] > 0


def test_passes_continue_from_any_state() -> None:
    busy = replace(running(1, "n00"), id=5)
    assert time_passes(snap(nodes(2), busy, queued(9, 9)))["running"] == 1


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        pytest.param("no.json", "--synthetic: no.json: no such file", id="absent"),
        pytest.param("PATH", "PATH: no task in it", id="empty"),
    ],
)
def test_passes_over_nothing_are_refused(
    argument: str, message: str, stored: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(stored(snap(nodes(2))))
    assert main(["--synthetic", argument.replace("PATH", path)]) == 2
    assert capsys.readouterr().err == f"hai: {message.replace('PATH', path)}\n"


def test_a_log_tells_when_tasks_came_and_how_long_they_ran(tmp_path: Path) -> None:
    old, first, second, third = (queued(i, created_at=NOW + i) for i in range(1, 5))
    shown = [
        PassInput(NOW + 5, tasks=(first, second)),
        PassInput(NOW + 6, tasks=(replace(first, held=True), third)),
        PassInput(NOW + 90, gone=(2,), endings=(Ending(first, 80.0), Ending(queued(99), 5.0))),
    ]
    begin = Begin(Policy(), replace(snap(nodes(1), old), endings=(Ending(second, 7.0),)))
    text = begin_line(begin) + "".join(pass_line(Pass(each, Plan(0, ()))) for each in shown)
    path = tmp_path / "decisions.jsonl"
    path.write_text(text + '{"shown"')  # the server is writing the last line
    trace = of(path)
    assert trace.format == "decisions"
    assert [(job.user, job.submit, job.duration) for job in trace.jobs] == [("u2", 0.0, 80.0)]
    assert trace.skipped == {"tasks that have not ended, or never ran": 3}
    path.write_text(text + "x\n")
    with pytest.raises(Invalid, match=f"{path}:5: is not JSON"):
        of(path)


def test_in_a_log_a_task_comes_when_those_before_it_have_ended(tmp_path: Path) -> None:
    first = queued(1, created_at=NOW)
    behind = queued(2, created_at=NOW, awaited=(1,))
    free = replace(behind, awaited=(), waiting_since=NOW + 50)
    again = replace(free, run_seconds=20.0, waiting_since=NOW + 80)
    known = queued(3, created_at=NOW + 10, run_seconds=20.0, waiting_since=NOW + 30)
    shown = [
        PassInput(NOW + 31, tasks=(first, behind, known)),
        PassInput(NOW + 50, tasks=(free,)),
        PassInput(NOW + 80, tasks=(again,)),
        PassInput(NOW + 99, endings=tuple(Ending(t, 40.0) for t in (first, again, known))),
    ]
    path = tmp_path / "decisions.jsonl"
    passes = (pass_line(Pass(each, Plan(0, ()))) for each in shown)
    path.write_text(begin_line(Begin(Policy(), snap(nodes(1)))) + "".join(passes))
    assert sorted((job.user, job.submit) for job in of(path).jobs) == [
        ("u1", 0.0),
        ("u2", 50.0),
        ("u3", 10.0),
    ]
