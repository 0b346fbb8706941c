"""Tests of names and links that are not UTF-8: they are listed unless they are ignored, and block nothing."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hai.client.profile import Profile
from hai_sync.cli.main import main
from hai_sync.session.daemon import Daemon
from hai_sync.session.options import SyncOptions
from hai_sync.watch.control import query_daemon

ODD = os.fsdecode(b"caf\xe9")


def _file(root: Path) -> str:
    (root / f"{ODD}.txt").write_text("1")
    return f"{ODD}.txt"


def _directory(root: Path) -> str:
    (root / ODD / "inner").mkdir(parents=True)
    (root / ODD / "inner/file").write_text("1")
    return ODD


def _inside(root: Path) -> str:
    (root / "d").mkdir()
    (root / "d" / ODD).write_text("1")
    return f"d/{ODD}"


def _link(root: Path) -> str:
    (root / "link").symlink_to(ODD)
    return "link"


@pytest.mark.parametrize("make", [_file, _directory, _inside, _link])
async def test_odd_names_are_listed_and_the_rest_is_synced(make, laptop) -> None:
    laptop.write("a", "1")
    odd = make(laptop.root)
    for text in ("1", "2"):
        laptop.write("a", text)
        report = await laptop.sync()
        assert (report.in_sync, list(report.problems)) == (False, [odd])
        assert laptop.on_cluster() == {"a": text.encode()}
    os.unlink(laptop.root / odd) if odd != ODD else shutil.rmtree(laptop.root / odd)
    assert (await laptop.sync()).in_sync


async def test_ignored_odd_names_are_not_listed(laptop) -> None:
    laptop.write("a", "1")
    (laptop.root / f"{ODD}.pyc").write_text("1")
    for _ in range(2):
        report = await laptop.sync()
        assert (report.in_sync, report.ignored) == (True, 1)
    assert laptop.on_cluster() == {"a": b"1"}


async def test_a_removed_directory_with_an_odd_name_is_forgotten(laptop) -> None:
    _inside(laptop.root)
    await laptop.sync()
    shutil.rmtree(laptop.root / "d")
    laptop.session.hint(["d"])
    assert (await laptop.session.sync(SyncOptions())).in_sync
    assert not (laptop.cluster / "d").exists()


@pytest.mark.parametrize("name", [f"{ODD}.txt", f"{ODD}~"])
async def test_a_daemon_handles_events_of_odd_names(name: str, laptop) -> None:
    daemon = Daemon(laptop.session, SyncOptions(), lambda line: None)
    work = asyncio.create_task(daemon.run())
    async with asyncio.timeout(20):
        while not (daemon.state.syncs and laptop.session.workspace.socket.exists()):  # noqa: ASYNC110 - a disk tells nobody
            await asyncio.sleep(0.01)
        (laptop.root / name).write_text("1")
        await asyncio.sleep(0.5)
        laptop.write("a", "1")
        answer = await asyncio.to_thread(
            query_daemon, laptop.session.workspace.private_dir, {"verb": "flush"}
        )
        assert list(answer["problems"]) == [name] * name.endswith("txt")
        assert laptop.on_cluster() == {"a": b"1"}
        assert not daemon.events.why_polling
    daemon.stop()
    await work


@pytest.fixture
def root(profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HAI_SERVER", profile.server)
    monkeypatch.setenv("HAI_TOKEN", profile.token)
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.chdir(root)
    assert main(["init", f"odd-{os.urandom(5).hex()}"]) == 0
    return root


def test_commands_escape_odd_names(root: Path, capsys) -> None:
    _file(root)
    for verb in ("push", "sync", "status"):
        assert main([verb]) == (verb != "status")
        out, err = capsys.readouterr()
        assert "not synced: caf\\udce9.txt: its name is not UTF-8; rename it" in out + err
    assert main(["push", "--json"]) == 1
    output = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(output["problems"]) == [f"{ODD}.txt"]
    assert main(["push", "--dry-run"]) == 1
    assert "not synced: caf\\udce9.txt" in capsys.readouterr().err
    (root / ".haiignore").write_bytes(b"*.txt\n/data\xe9\n")
    assert main(["check-ignore", f"data{ODD[-1]}"]) == 0
    assert "data\\udce9" in capsys.readouterr().out


def test_a_daemon_reports_odd_names(root: Path) -> None:
    _file(root)
    assert _run_command("watch", "start")[0] == 0
    try:
        assert _run_command("push")[0] == 1
        code, out = _run_command("watch", "status")
        output = "\nnot synced: caf\\udce9.txt: its name is not UTF-8"
        assert (code, output in out) == (0, True)
    finally:
        assert _run_command("watch", "stop")[0] == 0


def _run_command(*arguments: str) -> tuple[int, str]:
    """Run a command in a separate process."""
    command = [sys.executable, "-m", "hai_sync.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout


def test_a_workspace_below_an_odd_name_is_synced(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root.rename(root.with_name(ODD)))
    Path("a").write_text("1")
    assert _run_command("push")[0] == 0
    assert _run_command("watch", "start")[0] == 0
    try:
        Path("a").write_text("2")
        assert _run_command("push") == (0, "in sync at revision 2 (daemon)\n")
        assert "polls every few seconds" not in _run_command("watch", "status")[1]
    finally:
        assert _run_command("watch", "stop")[0] == 0
