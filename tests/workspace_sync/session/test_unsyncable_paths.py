"""Tests of remote paths that cannot be synced: pulls and scans report them, and nothing is removed because of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hai.client.profile import Profile
from hai_sync.cli.main import main
from hai_sync.core.reconcile_options import Mode
from hai_sync.session.daemon import Daemon
from hai_sync.session.options import Report, SyncOptions
from hai_sync.watch.control import server_choice
from hai_sync.workspace_dir import find_workspace

NFD = "cafe\u0301"


@pytest.mark.parametrize("mode", [Mode.PULL, Mode.SYNC])
async def test_a_pull_reports_unsyncable_paths_and_gets_the_rest(mode: Mode, laptop) -> None:
    (laptop.cluster / NFD).write_text("1")
    os.mkfifo(laptop.cluster / "pipe")
    for text in ("1", "2"):
        (laptop.cluster / "out").write_text(text)
        report = await laptop.sync(mode)
        assert sorted(report.passed_over) == [NFD, "pipe"]
        assert report.passed_over["pipe"].startswith("on the cluster it is a special file")
        assert (report.in_sync, laptop.read()) == (False, {"out": text.encode()})
    (laptop.cluster / NFD).unlink()
    (laptop.cluster / "pipe").unlink()
    assert (await laptop.sync(mode)).in_sync


async def test_a_push_ignores_unsyncable_remote_paths(laptop) -> None:
    os.mkfifo(laptop.cluster / "pipe")
    laptop.write("a", "1")
    assert (await laptop.push()).in_sync
    (laptop.cluster / "a").write_text("2")  # so that the push scans the files
    laptop.write("b", "1")
    assert (await laptop.push()).passed_over == {}


@pytest.mark.parametrize("rule", ["data", "data/", "*a"])
async def test_ignored_unsyncable_paths_are_not_reported(rule: str, laptop) -> None:
    laptop.write(".haiignore", rule)
    (laptop.cluster / "data").symlink_to("/srv")
    assert (await laptop.sync()).in_sync


@pytest.mark.parametrize("mode", [Mode.PULL, Mode.SYNC])
async def test_an_unsyncable_path_that_replaces_a_directory_removes_nothing(
    mode: Mode, laptop
) -> None:
    laptop.write("data/x", "1")
    laptop.write("data/y", "1")
    await laptop.sync()
    (laptop.cluster / "data").rename(laptop.cluster.parent / "moved")
    (laptop.cluster / "data").symlink_to(laptop.cluster.parent / "moved")
    for _ in range(2):
        report = await laptop.sync(mode)
        assert list(report.passed_over) == ["data"]
        assert sorted(laptop.read()) == ["data/x", "data/y"]
    (laptop.cluster / "data").unlink()
    (laptop.cluster.parent / "moved").rename(laptop.cluster / "data")
    assert (await laptop.sync(mode)).in_sync
    assert sorted(laptop.read()) == ["data/x", "data/y"]


async def test_a_daemon_remembers_unsyncable_remote_paths(laptop) -> None:
    laptop.write("a", "1")
    os.mkfifo(laptop.cluster / "pipe")
    reported: list[str] = []
    daemon = Daemon(laptop.session, SyncOptions(), reported.append)
    for text in ("1", "2"):
        laptop.write("a", text)
        report = await laptop.session.sync(daemon.options)
        laptop.session.hint(["a"])
        assert list(report.passed_over) == ["pipe"]
    assert report.problems == {}


@pytest.fixture
def root(profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HAI_SERVER", profile.server)
    monkeypatch.setenv("HAI_TOKEN", profile.token)
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.chdir(root)
    assert main(["init", f"over-{os.urandom(5).hex()}"]) == 0
    return root


def _cluster(capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["status", "--json"]) == 0
    return Path(json.loads(capsys.readouterr().out.splitlines()[-1])["remote"])


def test_commands_report_unsyncable_remote_paths(root: Path, capsys) -> None:
    assert find_workspace().root == root
    os.mkfifo(_cluster(capsys) / "pipe")
    words = "not synced: pipe: on the cluster it is a special file (socket, pipe or device)\n"
    for verb, code in (("pull", 1), ("sync", 1), ("status", 0), ("diff", 0), ("push", 0)):
        assert main([verb]) == code
        out, err = capsys.readouterr()
        assert (words in out + err) == (verb != "push")
    assert main(["pull", "--json"]) == 1
    assert list(json.loads(capsys.readouterr().out.splitlines()[-1])["passed_over"]) == ["pipe"]
    assert main(["pull", "--dry-run"]) == 1
    assert words in capsys.readouterr().err


def test_restore_succeeds_beside_unsyncable_paths(root: Path, capsys) -> None:
    cluster = _cluster(capsys)
    for text in ("1", "2"):
        (root / "a").write_text(text)
        assert main(["push"]) == 0
    os.mkfifo(cluster / "pipe")
    os.mkfifo(root / "ours")
    assert main(["restore", "-r", "1", "a"]) == 0
    assert (root / "a").read_text() == "1"
    output = capsys.readouterr().err
    assert "not synced: pipe: on the cluster" in output
    assert "not synced: ours: " in output
    (root / "a").write_text("here")
    (cluster / "a").write_text("there")
    assert main(["resolve", "a", "--keep", "local"]) == 0
    assert (cluster / "a").read_text() == "here"
    (root / "a").write_text("once more")
    (cluster / "a").write_text("and there")
    (root / "ours").unlink()
    assert main(["resolve", "--all", "--keep", "remote"]) == 0
    assert main(["restore", "-r", "2"]) == 0
    assert (root / "a").read_text() == "2"


def test_restore_fails_if_an_unsyncable_path_blocks_it(root: Path, capsys) -> None:
    (root / "d").mkdir()
    (root / "d/a").write_text("1")
    assert main(["push"]) == 0
    (root / "d/a").unlink()
    assert main(["push"]) == 0
    os.mkfifo(root / "d/a")
    assert main(["restore", "-r", "1", "d"]) == 1


def test_a_push_through_a_daemon_reports_unsyncable_remote_paths(
    root: Path, monkeypatch, capsys
) -> None:
    report = Report(revision=3, passed_over={"pipe": "on the cluster it is a special file"})
    answer = {**report.as_dict(), "surroundings": server_choice("")}
    monkeypatch.setattr("hai_sync.cli.main._flush_daemon", lambda root, scan_remote: answer)
    assert main(["push"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("in sync at revision 3 (daemon)\n", "  on the cluster only: pipe\n")
    assert main(["sync"]) == 1, "as without a daemon"


@pytest.mark.parametrize("command", [("push",), ("watch", "status")])
def test_the_reply_of_an_older_daemon_is_accepted(root: Path, monkeypatch, command) -> None:
    reported = {name: fact for name, fact in Report().as_dict().items() if name != "passed_over"}
    state = {"pid": 1, "mode": "sync", "phase": "watching", "syncs": 1, "polling": "", "error": ""}
    monkeypatch.setattr("hai_sync.cli.main._flush_daemon", lambda root, scan_remote: reported)
    monkeypatch.setattr(
        "hai_sync.cli.commands.watch.query_daemon", lambda *args, **more: state | reported
    )
    assert main(command) == 0
