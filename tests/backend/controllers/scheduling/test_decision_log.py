"""A replay of a decision log makes the same decisions. Errors of the log never affect a pass."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.controllers.scheduling.decision_log import DecisionLog, Recorder, Unrecorded
from hai_backend.domain.node import Group, Node
from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.progress import Suspension
from hai_backend.domain.scheduling.plan import Plan, Start, Suspend
from hai_backend.domain.scheduling.snapshot import Ending, QuotaRow, SchedTask, SchedulingState
from hai_backend.scheduler import Policy, SchedulerCache
from hai_backend.scheduler.policy.rules import Rules
from hai_backend.scheduler.recorded_input import PassInput, apply
from hai_backend.sim.replay.verify import verify

POLICY = Policy(minimum_seconds=60.0, overhead_share=0.5, relearn_seconds=0.0)


@dataclass
class Story:
    """A cluster with random events, and its scheduling passes."""

    draw: Random
    recorder: Recorder
    board: SchedulerCache = field(default_factory=lambda: SchedulerCache(POLICY))
    now: float = 1_000_000.0
    rules: Rules = field(default_factory=lambda: Rules({"g": Group("g"), "h": Group("h", True)}))
    nodes: tuple[Node, ...] = tuple(Node(f"n{i}", "gh"[i % 2], gpus=4) for i in range(8))
    tasks: dict[int, SchedTask] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    gone: list[int] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    submitted: int = 0
    decisions: int = 0
    losses: int = 0
    shown_to: SchedulerCache | None = None

    def tell(self, number: int) -> None:
        for _ in range(number):
            for _ in range(self.draw.randrange(6)):
                self.draw.choice(
                    (
                        self.submit,
                        self.submit,
                        self.submit,
                        self.end,
                        self.end,
                        self.leave,
                        self.alter,
                    )
                )()
            self.now += self.draw.choice((0.1, 30.0, 500.0, 20_000.0))
            if self.shown_to is not None and self.draw.random() < 0.02:
                self.lose_the_board()
            self.carry_out(self.pass_over())

    def lose_the_board(self) -> None:
        """Replace the cache by a new one, as after a failed pass. The next pass gets all tasks."""
        self.board, self.changed = SchedulerCache(POLICY), set(self.tasks)
        self.losses += 1

    def pass_over(self) -> Plan:
        some = tuple(self.tasks[task] for task in sorted(self.changed))
        known = self.shown_to is self.board and self.draw.random() < 0.7
        nodes = None if known else self.nodes
        ended = tuple(self.endings)
        shown = PassInput(self.now, self.rules, nodes, ended, some, tuple(self.gone))
        self.changed, self.gone, self.endings = set(), [], []
        self.board = self.recorder.before(self.board)
        self.shown_to = self.board
        plan = apply(self.board, shown)
        self.recorder.after(shown, plan)
        self.decisions += len(plan.decisions)
        return plan

    def carry_out(self, plan: Plan) -> None:
        for decision in plan.decisions:
            if self.draw.random() < 0.2:  # the task no longer fits
                continue
            match decision:
                case Start(task=task, nodes=nodes, priority=level):
                    self.put(
                        task, standing=SchedulingState.RUNNING, placed=nodes, run_priority=level,
                        run_started_at=self.now,
                    )  # fmt: skip
                case Suspend(task=task, for_task=other, higher=higher):
                    mark = Suspension(self.now, other, higher)
                    self.put(
                        task, standing=SchedulingState.LEAVING, suspended_for=other,
                        suspensions=(*self.tasks[task].suspensions, mark),
                    )  # fmt: skip

    def put(self, task: int, **facts: object) -> None:
        self.tasks[task] = replace(self.tasks[task], **facts)  # type: ignore[arg-type]
        self.changed.add(task)

    def one_of(self, *standing: SchedulingState) -> SchedTask | None:
        found = [task for task in self.tasks.values() if task.standing in standing]
        return self.draw.choice(found) if found else None

    def submit(self) -> None:
        self.submitted += 1
        draw = self.draw
        self.tasks[self.submitted] = SchedTask(
            self.submitted, draw.choice("uvw"), draw.choice("gh"), draw.choice((1, 1, 1, 2, 2, 3, 9)),
            draw.choice((Priority.AUTO, *LEVELS)), self.now, gpu=draw.choice((0, 1, 2)),
            custom_rank=draw.choice((0.0, -1.5, float("nan"))), name=draw.choice("xy"),
        )  # fmt: skip
        self.changed.add(self.submitted)

    def end(self) -> None:
        if task := self.one_of(SchedulingState.RUNNING):
            del self.tasks[task.id]
            self.changed.discard(task.id)
            self.gone.append(task.id)
            self.endings.append(Ending(task, self.now - (task.run_started_at or self.now)))

    def leave(self) -> None:
        if task := self.one_of(SchedulingState.LEAVING):
            self.put(
                task.id, standing=SchedulingState.QUEUED, placed=(), run_started_at=None,
                waiting_since=self.now, run_seconds=task.run_seconds + 77.7,
            )  # fmt: skip

    def alter(self) -> None:
        node = self.draw.choice(self.nodes)
        other = replace(node, cordoned=not node.cordoned, reason="x")
        self.nodes = tuple(other if each is node else each for each in self.nodes)
        row = QuotaRow(self.draw.choice("uvw"), "g", Priority.NORMAL, self.draw.randrange(5))
        self.rules = replace(self.rules, quotas=(row,))


def recorded(path: Path, **more: object) -> DecisionLog:
    return DecisionLog(path, POLICY, "1.2.3", **more)  # type: ignore[arg-type]


@given(st.integers(0, 2**32), st.sampled_from([20_000, 10**9]))
@settings(max_examples=40, deadline=None)
def test_a_replay_makes_every_decision_again(seed: int, limit: int) -> None:
    with TemporaryDirectory() as folder:
        path, older = Path(folder, "log"), Path(folder, "log.1")
        story = Story(Random(seed), recorded(path, limit=limit))
        story.tell(60)
        verdicts = [verify(str(file)) for file in (older, path) if file.exists()]
    assert [verdict.difference for verdict in verdicts] == [None] * len(verdicts)
    if limit > 20_000:
        assert (verdicts[0].passes, verdicts[0].decisions) == (60, story.decisions)
        assert verdicts[0].beginnings == 1 + story.losses
        assert verdicts[0].releases == ("1.2.3",)


def test_a_recorded_scheduler_decides_as_one_that_is_not(tmp_path: Path) -> None:
    stories = [Story(Random(5), r) for r in (recorded(tmp_path / "log"), Unrecorded())]
    for story in stories:
        story.tell(100)
    assert repr(stories[0].tasks) == repr(stories[1].tasks)
    assert stories[0].decisions == stories[1].decisions > 100


@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_order_of_sets_decides_nothing(tmp_path: Path, seed: str) -> None:
    """Hashes of strings differ between processes."""
    path = tmp_path / "log"
    Story(Random(9), recorded(path)).tell(200)
    command = [sys.executable, "-m", "hai_backend.sim", str(path), "--verify"]
    surroundings = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_it_is_bounded_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "log"
    Story(Random(1), recorded(path, limit=100_000)).tell(400)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["log", "log.1"]
    for file in tmp_path.iterdir():
        assert file.stat().st_size < 200_000
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert verify(str(file)).difference is None


def test_after_a_restart_the_log_goes_on_with_a_new_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    Story(Random(1), recorded(path)).tell(10)
    path.write_bytes(path.read_bytes()[:-30])  # a crash leaves an incomplete line
    Story(Random(2), recorded(path)).tell(10)
    verdict = verify(str(path))
    assert (verdict.beginnings, verdict.passes, verdict.difference) == (2, 19, None)


def test_without_a_place_to_write_passes_go_on_and_it_is_tried_again(tmp_path: Path) -> None:
    now = [0.0]
    path = tmp_path / "later" / "log"
    story = Story(Random(1), recorded(path, monotonic=lambda: now[0]))
    story.tell(20)
    assert not path.parent.exists()
    path.parent.mkdir()
    story.tell(5)
    assert not path.exists()
    now[0] = 100.0
    story.tell(10)
    assert (verify(str(path)).passes, verify(str(path)).difference) == (10, None)


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """As on a full disk: a write is cut short, the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_on_a_full_disk_passes_go_on_and_no_half_line_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, now = tmp_path / "log", [0.0]
    story = Story(Random(1), recorded(path, monotonic=lambda: now[0]))
    story.tell(10)
    whole = path.read_bytes()
    with no_file_larger_than(len(whole) + 40):
        for _ in range(3):
            story.tell(5)
            now[0] += 100.0
    assert path.read_bytes() == whole
    story.tell(10)
    verdict = verify(str(path))
    assert (verdict.beginnings, verdict.passes, verdict.difference) == (2, 20, None)
    assert capsys.readouterr().out.count("cannot be recorded") == 1


def test_a_log_that_somebody_else_changes_begins_anew(tmp_path: Path) -> None:
    path, now = tmp_path / "log", [0.0]
    story = Story(Random(1), recorded(path, monotonic=lambda: now[0]))
    story.tell(10)
    path.unlink()
    story.tell(1)
    now[0] = 100.0
    story.tell(5)
    verdict = verify(str(path))
    assert (verdict.beginnings, verdict.passes, verdict.difference) == (1, 5, None)
