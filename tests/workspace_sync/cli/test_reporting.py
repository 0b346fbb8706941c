"""Tests of the progress line with a scripted clock, and of printed plans."""

from __future__ import annotations

import io
import json
import os
import sys
import tracemalloc
from pathlib import Path

import pytest

from hai_sync.cli.reporting import Progress, print_plan
from hai_sync.core.diff import Change
from hai_sync.core.entry import Entry, Kind
from hai_sync.core.reconcile_options import Conflict, Outcome
from hai_sync.session.options import Report

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# seconds since the previous report, then completed files and bytes
Step = tuple[float, int, int]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def report_progress(size: int, steps: list[Step], *, as_json: bool = False, files: int = 4) -> None:
    clock = Clock()
    progress = Progress(as_json, quiet=False, clock=clock)
    progress.stage("download", files, size)
    for seconds, done, bytes_ in steps:
        clock.now += seconds
        progress.progress(done, bytes_)


@pytest.mark.parametrize(
    ("size", "steps", "line"),
    [
        pytest.param(
            8 * MIB, [(2, 1, 4 * MIB)], "1/4 files, 4 MiB of 8 MiB, 2 MiB/s, 2 s left", id="half of it"
        ),
        pytest.param(
            8 * MIB, [(1, 4, 8 * MIB)], "4/4 files, 8 MiB of 8 MiB, 8 MiB/s, 0 s left", id="all of it"
        ),
        pytest.param(
            10 * MIB,
            [(1, 0, MIB), (1, 0, 3 * MIB)],
            "0/4 files, 4 MiB of 10 MiB, 2 MiB/s, 3 s left",
            id="the speed is that of all the time",
        ),
        pytest.param(
            8 * KIB, [(4, 1, 9 * KIB)], "1/4 files, 9 KiB of 8 KiB, 2.25 KiB/s, 0 s left", id="more than was said"
        ),
        pytest.param(GIB, [(1, 3, 0)], "3/4 files, 0 B of 1 GiB, 0 B/s", id="nothing yet but empty files"),
        pytest.param(0, [(1, 2, 0)], "2/4 files, 0 B of 0 B, 0 B/s", id="nothing but empty files"),
        pytest.param(100, [(1, 0, 1)], "0/4 files, 1 B of 100 B, 1 B/s, 99 s left", id="a very slow line"),
    ],
)  # fmt: skip
def test_the_progress_line(
    size: int, steps: list[Step], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    report_progress(size, steps)
    assert terminal.getvalue().rpartition("\r\x1b[K")[2] == f"download: {line}"


@pytest.mark.parametrize(
    ("size", "steps", "output"),
    [
        pytest.param(4000, [(2, 1, 1000)], [(1, 1000, 500, 6)], id="half of it"),
        pytest.param(4000, [(1, 1, 0)], [(1, 0, 0, None)], id="nobody knows yet"),
        pytest.param(4000, [(0.09, 1, 90)], [], id="not at once"),
        pytest.param(
            4000,
            [(0.0625, 1, 50), (0.0625, 1, 60), (0.0625, 1, 1), (0.0625, 1, 109)],
            [(2, 110, 880, 4), (4, 220, 880, 4)],
            id="ten times a second, and of all that was done",
        ),
    ],
)
def test_progress_events_in_json(
    size: int, steps: list[Step], output: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    report_progress(size, steps, as_json=True)
    stage, *events = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert stage == {"event": "stage", "name": "download", "files": 4, "bytes": size}
    facts = ("files", "bytes", "bytes_per_second", "eta")
    assert [tuple(each[fact] for fact in facts) for each in events] == output


def test_each_stage_restarts_the_count(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    progress = Progress(as_json=True, quiet=False, clock=clock)
    for name in ("hash", "upload"):
        progress.stage(name, 1, 1000)
        clock.now += 1
        progress.progress(1, 250)
    *_, last = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (last["name"], last["bytes"], last["bytes_per_second"], last["eta"]) == (
        "upload", 250, 250, 3,
    )  # fmt: skip


def test_a_plan_is_printed_item_by_item(monkeypatch, capsys) -> None:
    entry = Entry(Kind.FILE, b"\0" * 32, 7)
    changes = tuple(Change(f"f{number}", None, entry) for number in range(20_000))
    conflict = Conflict("both", None, {"both": entry}, {})
    outcome = Outcome(
        to_remote=changes, to_local=(Change("old", entry, None),), conflicts=(conflict,)
    )
    not_synced = {
        "problems": {"p": 'a "pipe"'},
        "skipped": {"l": "it leads out"},
        "passed_over": {"q": "special"},
    }
    report = Report(outcome=outcome, **not_synced)
    with Path(os.devnull).open("w") as nowhere:
        monkeypatch.setattr(sys, "stdout", nowhere)
        for as_json in (True, False):
            tracemalloc.start()
            print_plan(report, as_json)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 1 << 20
    monkeypatch.undo()
    print_plan(report, as_json=True)
    output = json.loads(capsys.readouterr().out)
    assert [each["path"] for each in output.pop("to_remote")] == [each.path for each in changes]
    facts = {"kind": "file", "size": 7, "mtime_ns": 0, "digest": "00" * 32}
    assert output == {
        "event": "plan",
        "to_local": [{"path": "old", "verb": "remove", "old": facts, "new": None}],
        "conflicts": [{"path": "both", "local": facts, "remote": None}],
        "problems": {"p": 'a "pipe"'},
        "skipped": {"l": "it leads out"},
        "passed_over": {"q": "special"},
    }
