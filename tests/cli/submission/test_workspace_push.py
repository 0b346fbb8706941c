"""A task that is submitted from a workspace runs the revision that is pushed first."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

DONE = {"event": "done", "revision": 7, "conflicts": [], "problems": {}, "refused": ""}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is one, with a program that answers in place of haiworkspace."""
    (tmp_path / ".hfai").mkdir()
    (tmp_path / ".hfai/workspace.yml").write_text("name: demo\nid: 1\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("")
    monkeypatch.chdir(tmp_path / "src")
    return tmp_path


def answer(
    monkeypatch: pytest.MonkeyPatch, report: dict, code: int = 0, error: str = ""
) -> list[Path]:
    asked: list[Path] = []

    def run(command: list[str], *, cwd: Path, **more: object) -> subprocess.CompletedProcess[str]:
        asked.append(cwd)
        return subprocess.CompletedProcess(command, code, json.dumps(report) + "\n", error)

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_the_task_names_the_revision_and_the_folder(hai, fake, workspace, monkeypatch) -> None:
    asked = answer(monkeypatch, DONE)
    done = hai("python", "train.py", "--")
    newest = max(fake.world.tasks.values(), key=lambda task: task.id)
    assert newest.spec.spec.workspace == "haiworkspace://demo@7/src"
    assert done.code == 0
    assert f"fetch its files: hai workspace download --task {newest.id}\n" in done.err
    assert asked == [workspace]


def test_what_names_no_task_is_said_before_a_push(hai, workspace, monkeypatch) -> None:
    asked = answer(monkeypatch, DONE)
    assert hai("python", "train.py", "--", "--after", "nobody").code == 3
    assert asked == []
    assert hai("python", "train.py", "--", "--after", "1:ended").code == 0
    assert asked == [workspace]


def test_it_can_be_left(hai, fake, workspace, monkeypatch) -> None:
    asked = answer(monkeypatch, DONE)
    done = hai("python", "train.py", "--", "--no-push")
    assert (done.code, "hai workspace download" in done.err) == (0, False)
    newest = max(fake.world.tasks.values(), key=lambda task: task.id)
    assert newest.spec.spec.workspace == str(workspace / "src")
    assert asked == []


def test_elsewhere_nothing_is_pushed(hai, tmp_path, monkeypatch) -> None:
    asked = answer(monkeypatch, DONE)
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert hai("python", "train.py", "--").code == 0
    assert asked == []


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ({**DONE, "conflicts": ["a"]}, "1 files have changed on both sides"),
        ({**DONE, "problems": {"a": "b"}}, "1 paths cannot be synced (a: b)"),
        (
            {**DONE, "problems": dict.fromkeys("abcde", "why")},
            "5 paths cannot be synced (a: why; b: why; c: why; 2 more)",
        ),
        ({**DONE, "refused": "many removals"}, "many removals"),
        (
            {**DONE, "refused": "skipped links", "skipped": {"up": "it leads out"}},
            "skipped links (up: it leads out)",
        ),
    ],
)
def test_a_push_that_is_refused_submits_nothing(
    report: dict, words: str, hai, fake, workspace, monkeypatch
) -> None:
    answer(monkeypatch, report, code=1)
    before = len(fake.world.tasks)
    found = hai("python", "train.py", "--")
    assert found.code == 1
    assert words in found.err
    assert len(fake.world.tasks) == before


def test_skipped_links_stop_no_submission_and_are_named(hai, fake, workspace, monkeypatch) -> None:
    answer(monkeypatch, {**DONE, "skipped": {"up": "it leads out", "data": "it leads to /data"}})
    before = len(fake.world.tasks)
    done = hai("python", "train.py", "--")
    assert (done.code, len(fake.world.tasks)) == (0, before + 1)
    assert "skipped: up: it leads out\nskipped: data: it leads to /data\n" in done.err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            '{"error": {"message": "there is no workspace x", "hint": ""}}',
            "there is no workspace x;",
        ),
        ("Traceback: x", "Traceback: x;"),
        ("", "it has no files;"),
    ],
)
def test_a_push_that_fails_is_told_in_words(error, words, hai, workspace, monkeypatch) -> None:
    answer(monkeypatch, {"event": "stage"}, code=3, error=error)
    done = hai("python", "train.py", "--")
    assert done.code == 1
    assert f"nothing is submitted: {words}" in done.err
