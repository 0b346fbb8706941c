"""Tests of the commands against a real server, each run as a user runs it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from click.shell_completion import ShellComplete

from hai.client import Client
from hai.client.profile import Profile, save
from hai.v1.task_spec_pb2 import ProgramSpec, TaskSpec
from hai.v1.workspace_pb2 import WorkspaceLease
from hai_sync.cli import errors
from hai_sync.cli.lazy import COMMANDS
from hai_sync.cli.main import group, main
from hai_sync.core import guards
from hai_sync.remote.endpoint import RateLimit, Remote
from hai_sync.workspace_dir import find_workspace


@pytest.fixture
def shell(
    profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs command lines in a new workspace."""
    monkeypatch.setenv("HAI_SERVER", profile.server)
    monkeypatch.setenv("HAI_TOKEN", profile.token)
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.chdir(root)

    def run(*argv: str) -> tuple[int, str, str]:
        code = main(argv)
        out, err = capsys.readouterr()
        return code, out, err

    assert run("init", f"w-{uuid4().hex[:10]}")[0] == 0
    return run


def last(out: str) -> dict:
    return json.loads(out.splitlines()[-1])


def test_a_usual_day_of_commands(shell) -> None:
    Path("train.py").write_text("one")
    Path("data").mkdir()
    Path("data/x").write_text("x")
    assert shell("push", "--dry-run") == (
        1,
        "-> + data/\n-> + data/x  (1 B)\n-> + train.py  (3 B)\n",
        "",
    )
    code, out, _ = shell("push", "--json")
    assert (code, last(out)["uploaded"], last(out)["revision"]) == (0, 3, 1)
    assert shell("push", "--dry-run")[:2] == (0, "")
    Path("train.py").write_text("two")
    assert shell("diff")[:2] == (1, "differs       train.py\n")
    code, out, _ = shell("diff", "train.py")
    assert "-one" in out
    assert "+two" in out
    shell("push")
    assert shell("restore", "-r", "1", "train.py")[0] == 0
    assert Path("train.py").read_text() == "one"
    shell("restore", "train.py", "--local")
    assert Path("train.py").read_text() == "two"
    assert "train.py" in shell("snapshots", "--local")[1]
    assert len(shell("snapshots")[1].splitlines()) == 3


def test_revisions_can_be_tagged(shell) -> None:
    Path("train.py").write_text("one\n")
    shell("push")
    assert shell("tag", "best")[:2] == (0, "revision 1 is tagged best\n")
    Path("train.py").write_text("two\n")
    Path("new").write_text("n")
    shell("push")
    assert json.loads(shell("tag", "v2", "--json")[1])["revision"]["tags"] == ["v2"]
    code, _, err = shell("tag", "best", "-r", "2")
    assert (code, "revision 1 is tagged 'best' already" in err) == (1, True)
    assert [line.split()[0] for line in shell("snapshots", "--tagged")[1].splitlines()] == [
        "2",
        "1",
    ]
    assert shell("snapshots", "-n", "1")[1].rstrip().endswith("[v2]")
    assert shell("cat", "train.py", "-r", "best")[1] == "one\n"
    assert "new" not in shell("ls", "-r", "best")[1]
    assert "nothing in revision best is called 'new'" in shell("cat", "new", "-r", "best")[2]
    assert shell("download", "train.py", "-r", "best", "--to", "../old")[0] == 0
    assert Path("../old/train.py").read_text() == "one\n"
    assert shell("restore", "-r", "best", "train.py")[:2] == (
        0,
        "revision 3: train.py as in revision best\nin sync at revision 3, 1 paths down\n",
    )
    assert shell("tag", "best", "--remove")[:2] == (0, "no revision is tagged best any more\n")
    code, _, err = shell("restore", "-r", "best")
    assert (code, "no revision is tagged 'best'" in err) == (3, True)
    assert shell("tag", "12")[0] == 2
    assert shell("tag", "v2", "--remove", "-r", "1")[0] == 2


def test_diff_compares_revisions(shell) -> None:
    Path("train.py").write_text("one\n")
    Path("gone").write_text("g")
    shell("push")
    shell("tag", "first")
    Path("train.py").write_text("two\n")
    Path("new").write_text("nn")
    Path("gone").unlink()
    shell("push")
    arguments = "removed       gone\nadded         new\nchanged       train.py\n"
    assert shell("diff", "-r", "first")[:2] == (1, arguments)
    assert shell("diff", "-r", "1", "-r", "2")[:2] == (1, arguments)
    assert shell("diff", "-r", "2")[:2] == (0, "")
    assert shell("diff", "-r", "first", "--stat")[1].splitlines()[0].split() == [
        *("added", "1", "paths", "2", "B"),
    ]
    code, out, _ = shell("diff", "train.py", "-r", "first")
    assert (code, out.splitlines()) == (
        1,
        ["--- revision 1/train.py", "+++ revision 2/train.py", "@@ -1 +1 @@", "-one", "+two"],
    )
    facts = last(shell("diff", "-r", "first", "--json")[1])
    assert [(each["path"], each["verb"]) for each in facts["changes"]] == [
        ("gone", "remove"),
        ("new", "create"),
        ("train.py", "modify"),
    ]
    assert shell("diff", "-r", "1", "-r", "2", "-r", "1")[0] == 2
    for filter in ("--exclude=new", "--include=new", "--no-ignore", "--no_checksum"):
        code, _, err = shell("diff", "-r", "1", filter)
        assert (code, "revisions are compared without filters" in err) == (2, True)
    code, _, err = shell("diff", "nothing", "-r", "first")
    assert (code, "neither revision 1/nothing nor revision 2/nothing exists" in err) == (3, True)


def test_settings_of_the_workspace_are_defaults_of_options(shell, monkeypatch) -> None:
    Path("f").write_text("one")
    shell("push")
    code, out, _ = shell("config", "list")
    assert (code, out.splitlines()[0].split()[:3]) == (0, ["conflict", "refuse", "(default)"])
    config = find_workspace().private_dir / "workspace.yml"
    before = config.read_text()
    assert shell("config", "set", "conflict", "local")[0] == 0
    assert shell("config", "set", "bwlimit", "64M")[0] == 0
    assert shell("config", "get", "bwlimit")[1] == "64M\n"
    assert last(shell("config", "list", "--json")[1]) == {
        **{"event": "config", "conflict": "local", "mode": "sync"},
        **{"bwlimit": "64M", "jobs": "as cores", "links": "auto", "strict": "no"},
    }
    name = find_workspace().name
    theirs = Path("../theirs")
    theirs.mkdir()
    monkeypatch.chdir(theirs)
    shell("init", name)
    shell("pull")
    Path("f").write_text("theirs")
    shell("push")
    monkeypatch.chdir("../root")
    Path("f").write_text("ours")
    paces = []
    monkeypatch.setattr(
        "hai_sync.cli.commands.transfer.RateLimit", lambda rate: paces.append(rate) or RateLimit()
    )
    # an option takes precedence over a setting
    assert shell("push", "--conflict", "refuse")[0] == 1
    assert shell("push")[0] == 0
    assert paces == [64 << 20] * 2
    for key in ("conflict", "bwlimit"):
        assert shell("config", "unset", key)[0] == 0
    assert config.read_text() == before


@pytest.mark.parametrize(
    ("argv", "arguments"),
    [
        pytest.param(("set", "bwlimit", "2X"), "bwlimit: must be bytes per second", id="a rate"),
        pytest.param(("set", "jobs", "0"), "jobs: 0 is not in the range", id="a number"),
        pytest.param(("set", "conflict", "mine"), "conflict: 'mine' is not one of", id="a choice"),
        pytest.param(("set", "colour", "red"), "'colour' is not one of", id="a key"),
        pytest.param(("get", "name"), "'name' is not one of", id="what is no option"),
    ],
)
def test_an_invalid_setting_is_not_stored(shell, argv, arguments) -> None:
    before = (find_workspace().private_dir / "workspace.yml").read_text()
    code, _, err = shell("config", *argv)
    assert (code, arguments in err) == (2, True)
    assert (find_workspace().private_dir / "workspace.yml").read_text() == before


def test_an_invalid_setting_fails_only_commands_that_use_it(shell) -> None:
    with (find_workspace().private_dir / "workspace.yml").open("a") as file:
        file.write("conflict: mine\nunknown: 1\nforce: true\nprofile: other\n")
    code, _, err = shell("sync")
    assert (code, "conflict: 'mine' is not one of" in err, "config set conflict" in err) == (
        *(2, True, True),
    )
    assert shell("sync", "--conflict", "local")[0] == 0
    assert shell("list")[0] == 0
    completing = ShellComplete(group(), {}, "haiworkspace", "_HAIWORKSPACE_COMPLETE")
    assert [each.value for each in completing.get_completions(["push"], "--con")] == ["--conflict"]
    assert shell("config", "unset", "conflict")[0] == 0
    assert shell("sync")[0] == 0


@contextmanager
def _watching(*how: str) -> Iterator[None]:
    """Run a daemon in a separate process."""
    command = [sys.executable, "-m", "hai_sync.cli.main", "watch"]
    subprocess.run([*command, "start", *how], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run([*command, "stop"], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("how", "command", "done"),
    [
        pytest.param(("--mode", "pull"), "push", "1 paths up", id="one that pulls pushes nothing"),
        pytest.param(
            ("--mode", "push"), "sync", "1 paths down", id="one that pushes pulls nothing"
        ),
        pytest.param(("--mode", "push"), "push", "(daemon)", id="one that pushes does that"),
        pytest.param(("--exclude", "h*"), "push", "1 paths up", id="one that leaves it out"),
    ],
)
def test_a_command_does_itself_what_the_daemon_does_not(shell, how, command, done) -> None:
    Path("here").touch()
    shell("push")
    on_cluster = Path(last(shell("status", "--json")[1])["remote"]) / "there"
    with _watching(*how):
        assert ("with its own filters" in shell("watch", "status")[1]) is ("--exclude" in how)
        (on_cluster if command == "sync" else Path("here")).write_text("x")
        code, out, _ = shell(command)
        assert (code, done in out) == (0, True), out


@pytest.mark.parametrize(
    ("how", "server", "by_daemon"),
    [
        pytest.param((), "127.0.0.1", True, id="the same"),
        pytest.param((), "localhost", False, id="another name"),
        pytest.param(("--profile", "other"), "127.0.0.1", False, id="one that was named"),
    ],
)
def test_a_daemon_of_another_server_is_not_used(
    shell, profile, monkeypatch, how, server, by_daemon
) -> None:
    save(replace(profile, name="other"))
    with _watching(*how):
        monkeypatch.setenv("HAI_SERVER", profile.server.replace("127.0.0.1", server))
        code, out, _ = shell("push")
        assert (code, "(daemon)" in out) == (0, by_daemon), out


AN_OLDER_DAEMON = """
import sys
from hai_sync.cli.main import main
from hai_sync.session.daemon import Daemon
flushed = Daemon._flush_request
async def as_before(self):
    said = (await flushed(self)).items()
    return {key: value for key, value in said if key not in ("mode", "surroundings")}
Daemon._flush_request = as_before
main(["watch", "start", "--foreground", "--mode", sys.argv[1]])
"""


@pytest.mark.parametrize("mode", ["pull", "sync"])
def test_a_daemon_of_an_older_version_is_not_relied_on(shell, mode) -> None:
    """Such a daemon reports neither its mode nor its server."""
    Path("here").touch()
    shell("push")
    with subprocess.Popen([sys.executable, "-c", AN_OLDER_DAEMON, mode]):
        try:
            while shell("watch", "status")[0]:
                time.sleep(0.02)
            Path("here").write_text("x")
            code, out, _ = shell("push")
            assert code == 0
            assert "(daemon)" not in out
            assert shell("cat", "here")[1] == "x"
        finally:
            shell("watch", "stop")


def test_a_pause_is_confirmed_by_the_reply_of_the_daemon(shell, monkeypatch) -> None:
    older = {"pid": 7, "phase": "watching"}
    monkeypatch.setattr(
        "hai_sync.cli.commands.watch.query_daemon", lambda private_dir, request, timeout: older
    )
    code, out, err = shell("watch", "pause")
    assert (code, out, "an older version, which cannot pause" in err) == (1, "", True)
    assert shell("watch", "start")[1] == "already running (pid 7)\n"
    newer = older | {"phase": "paused", "paused": True}
    monkeypatch.setattr(
        "hai_sync.cli.commands.watch.query_daemon", lambda private_dir, request, timeout: newer
    )
    assert shell("watch", "pause")[0] == 0
    assert "it is paused, `haiworkspace watch resume` continues" in shell("watch", "start")[1]


def test_commands_without_a_workspace_work_in_a_removed_directory(
    shell, tmp_path, monkeypatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert shell("list")[0] == 0
    assert shell("push", "--help")[0] == 0
    code, _, err = shell("push")
    assert (code, "the current directory was removed" in err) == (3, True)


def test_an_unreadable_parent_directory_is_no_error(shell, monkeypatch) -> None:
    def denied() -> None:
        raise PermissionError(13, "Permission denied", "/theirs/.hfai/workspace.yml")

    monkeypatch.setattr("hai_sync.workspace_dir.find_workspace", denied)
    assert shell("push", "--help")[0] == 0


def test_a_push_obeys_the_rate_limit(shell, monkeypatch) -> None:
    Path("f").write_text("one")
    shell("push")
    shell("push")
    Path("f").write_text("two!")
    shell("config", "set", "bwlimit", "1G")
    paces = []
    monkeypatch.setattr(
        "hai_sync.cli.commands.transfer.RateLimit", lambda rate: paces.append(rate) or RateLimit()
    )
    assert shell("push")[0] == 0
    assert paces == [1 << 30]


def test_a_bug_report_has_versions_state_and_log(shell, monkeypatch) -> None:
    Path("secret.txt").write_text("what nobody shall read")
    shell("push")
    state = find_workspace().state_dir
    with (find_workspace().private_dir / "workspace.yml").open("a") as file:
        file.write("jobs: 2\ntoken: what-nobody-shall-know\n")
    (state / "daemon.log").write_text("".join(f"line {n}\n" for n in range(100)))
    before = sorted(state.iterdir())
    code, out, _ = shell("bugreport", "--json")
    assert sorted(state.iterdir()) == before
    facts = last(out)
    assert (code, facts["index"]["rows"]["seen"], facts["index"]["check"]) == (0, 1, "ok")
    assert (facts["server"]["revision"], facts["daemon"], len(facts["log"])) == (1, None, 30)
    assert facts["versions"]["grpcio"]
    assert facts["workspace"]["settings"] == {"jobs": "2"}
    for hidden in ("what nobody", "what-nobody", os.environ["HAI_TOKEN"], "secret.txt"):
        assert hidden not in out
    with closing(sqlite3.connect(state / "index.sqlite")) as db, db:
        db.execute("UPDATE facts SET value = x'ff' WHERE name = 'filter'")
    assert last(shell("bugreport", "--json")[1])["index"]["filter"] == "b'\\xff'"
    (state / "index.sqlite").write_bytes(b"no database")
    monkeypatch.setenv("HAI_SERVER", "127.0.0.1:1")
    code, out, _ = shell("bugreport")
    facts = json.loads(out)
    assert (code, "not a database" in facts["index"]["failed"]) == (0, True)
    assert "cannot reach the server" in facts["server"]["failed"]
    assert (state / "index.sqlite").read_bytes() == b"no database"  # the report changes nothing


def test_a_large_push_is_announced_before_it_is_sent(shell, monkeypatch) -> None:
    monkeypatch.setattr(guards, "MAX_BYTES", 100)
    monkeypatch.setattr(guards, "MAX_FILES", 3)
    Path("train.py").write_text("x" * 100)
    assert "this sends" not in shell("push")[2]
    Path("data").mkdir()
    for number in range(3):
        Path(f"data/{number}").write_text("y" * (10 + number))
    Path("model").write_text("z" * 300)
    code, _, err = shell("push")
    assert (code, err.splitlines()) == (
        0,
        [
            "this sends 333 B in 4 files",
            *("       300 B  model", "        12 B  data/2", "        11 B  data/1"),
            *("        10 B  data/0", "           3 files  data/"),
            "  Ctrl-C stops it; a line in .haiignore excludes a path",
        ],
    )
    Path("model").write_text("a" * 300)
    assert shell("push", "-q")[2] == ""
    Path("model").write_text("b" * 300)
    output = [json.loads(line) for line in shell("push", "--json")[1].splitlines()]
    (large,) = (each for each in output if each["event"] == "heavy")
    assert (large["size"], large["largest"], large["fullest"]) == (300, [["model", 300]], [])


def test_diff_of_a_path_reports_every_kind_of_difference(shell, monkeypatch) -> None:
    before, after = {"bits": b"\xff\n", "nul": b"\0a"}, {"bits": b"\xfe\n", "nul": b"\0b"}
    Path("src").mkdir()
    for tree in (before, after):
        for name, data in tree.items():
            Path(name).write_bytes(data)
        Path("run.sh").touch()
        Path("run.sh").chmod(0o755 if tree is after else 0o644)
        Path("src/a").write_bytes(tree["nul"])
        if tree is before:
            shell("push")
            shell("tag", "first")
    output = {
        "bits": "@@ -1 +1 @@\n-\ufffd\n+\ufffd\n",
        "nul": "differ; they are not text\n",
        "run.sh": "differ in their kind or in the executable bit\n",
        "src": " src/a\n",
    }
    for revision in ((), ("-r", "first")):
        if revision:
            shell("push")
        for path, arguments in output.items():
            code, out, _ = shell("diff", path, *revision)
            assert (code, out.endswith(arguments)) == (1, True), (path, out)
        monkeypatch.chdir("src")
        assert shell("diff", ".", *revision)[1].split()[-1] == "src/a"
        assert len(shell("diff", "..", *revision)[1].splitlines()) == 4
        monkeypatch.chdir("..")
    (change,) = last(shell("diff", "src", "-r", "first", "--json")[1])["changes"]
    assert change["path"] == "src/a"
    assert shell("diff", ".", "-r", "2")[:2] == (0, "")


def test_restore_local_refuses_directories(shell) -> None:
    Path("data").mkdir()
    Path("data/x").write_text("one")
    shell("push")
    Path("data/x").write_text("two")
    shell("restore", "-r", "1")
    shell("pull", "--force")
    Path("data/new").write_text("stays")
    code, _, err = shell("restore", "data/", "--local")
    assert code == 2
    assert "data/x" in err
    assert Path("data/new").read_text() == "stays"
    assert shell("restore", "data/x", "--local")[:2] == (0, "data/x is restored\n")
    assert Path("data/x").read_text() == "two"


@pytest.fixture
def distant_timezone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use a time zone far away."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


def test_times_are_printed_in_local_time(shell, distant_timezone) -> None:
    assert "never written" in line_of(shell("list")[1])
    Path("a").write_text("one")
    shell("push")
    _, day, minute = shell("snapshots")[1].split()[:3]
    assert f"  {day} {minute[:5]}  " in line_of(shell("list")[1])


def line_of(listed: str) -> str:
    return next(line for line in listed.splitlines() if line.startswith("*"))


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a command that is killed, so that it does not release the write lease."""

    async def killed(remote: Remote, lease: WorkspaceLease) -> None:
        """Kill the process without output."""

    monkeypatch.setattr(Remote, "_release", killed)


@pytest.mark.usefixtures("dying")
def test_a_killed_remove_does_not_block_the_next_command(shell) -> None:
    for text in ("one", "two"):
        Path("a").write_text(text)
        assert shell("push")[0] == 0
        assert shell("remove", find_workspace().name, "-f", "a", "-y")[0] == 0
        assert shell("pull")[0] == 0
        assert not Path("a").exists()


def test_remove_waits_for_the_lock(shell, locked_by_other) -> None:
    Path("a").write_text("one")
    shell("push")
    this = find_workspace()
    command = [sys.executable, "-m", "hai_sync.cli.main", "remove", this.name, "-f", "a", "-y"]
    with locked_by_other(this.state_dir):
        child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert child.stderr is not None
        assert "waiting for another sync" in child.stderr.readline()
    child.communicate()
    assert child.returncode == 0


@pytest.mark.usefixtures("dying")
def test_a_killed_restore_does_not_block_the_next_command(shell) -> None:
    for text in ("one", "two"):
        Path("a").write_text(text)
        shell("push")
    for number, text in ((1, "one"), (2, "two")):
        assert shell("restore", "-r", str(number))[0] == 0
        assert Path("a").read_text() == text
    Path("a").write_text("three")
    assert shell("push")[0] == 0


def test_restore_takes_paths_relative_to_the_current_directory(shell, monkeypatch) -> None:
    Path("d").mkdir()
    Path("d/x").write_text("one")
    shell("push")
    Path("d/x").write_text("two")
    Path("top").write_text("new")
    shell("push")
    monkeypatch.chdir("d")
    assert shell("restore", "-r", "1", "x")[1].startswith("revision 3: d/x as in revision 1")
    assert Path("x").read_text() == "one"
    assert shell("restore", "x", "--local")[:2] == (0, "d/x is restored\n")
    assert Path("x").read_text() == "two"
    shell("push")
    shell("restore", "-r", "1", ".")
    assert (Path("x").read_text(), Path("../top").exists()) == ("one", True)
    assert shell("restore", "-r", "1", "..")[0] == 0
    assert not Path("../top").exists()
    assert shell("restore", "../..", "-r", "1")[0] == 2


def test_status_and_list_show_the_state(shell) -> None:
    Path("a").write_text("1")
    code, out, _ = shell("status", "-o", "json")
    facts = last(out)
    assert (code, facts["uploaded"], facts["daemon"]) == (0, 1, None)
    shell("push")
    code, out, _ = shell("list", "--json")
    mine = [w for w in last(out)["workspaces"] if w["name"] == facts["name"]]
    assert mine[0]["local"] == os.getcwd()
    assert mine[0]["files"] == 1


def test_remove_asks_and_download_fetches(shell) -> None:
    Path("out").mkdir()
    Path("out/a.txt").write_text("a")
    Path("keep").write_text("k")
    shell("push")
    name = last(shell("status", "--json")[1])["name"]
    assert shell("download", "out", "--to", "../copy")[0] == 0
    assert Path("../copy/out/a.txt").read_text() == "a"
    assert shell("remove", name, "-f", "*.txt", "--dry-run")[1] == "out/a.txt\n"
    assert shell("remove", name, "-f", "../x", "-y")[0] == 2
    for arguments in ((), ("-f", "*.txt")):  # without a terminal no confirmation is possible
        code, _, err = shell("remove", name, *arguments)
        assert code == 2
        assert "hint: confirm with --yes" in err
    assert shell("remove", name, "-f", "*.txt", "-y")[0] == 0
    assert shell("pull")[0] == 0
    assert not Path("out/a.txt").exists()
    assert shell("remove", name, "-y")[0] == 0
    assert shell("pull")[0] == 3


@pytest.fixture
def cluster(shell) -> Callable[[str], None]:
    """Push `train.py` and `latest`, a link to it, and remove both locally."""

    def has(content: str) -> None:
        Path("train.py").write_text(content)
        Path("latest").symlink_to("train.py")
        assert shell("push")[0] == 0
        Path("train.py").unlink()
        Path("latest").unlink()

    return has


def test_download_overwrites_no_file_that_differs(shell, cluster) -> None:
    cluster("AAAA")
    Path("train.py").write_text("BBBB")
    Path("latest").write_text("precious")
    code, _, err = shell("download", "*")
    assert code == 2
    assert "latest, train.py" in err
    assert (Path("train.py").read_text(), Path("latest").read_text()) == ("BBBB", "precious")
    assert shell("download", "*", "--force")[0] == 0
    assert (Path("train.py").read_text(), os.readlink("latest")) == ("AAAA", "train.py")
    assert shell("restore", "train.py", "latest", "--local")[0] == 0
    assert (Path("train.py").read_text(), Path("latest").read_text()) == ("BBBB", "precious")


def test_download_of_equal_files_changes_nothing(shell, cluster) -> None:
    cluster("AAAA")
    assert shell("download", "*")[:2] == (0, "1 files, 4 B\n")
    before = Path("train.py").stat()
    assert shell("download", "*")[0] == 0
    after = Path("train.py").stat()
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)


def test_outside_the_workspace_only_files_are_replaced(shell, cluster) -> None:
    cluster("AAAA")
    assert shell("download", "*", "--to", "../copy")[0] == 0
    Path("../copy/train.py").write_text("BBBB")
    assert shell("download", "*", "--to", "../copy")[0] == 2
    assert Path("../copy/train.py").read_text() == "BBBB"
    assert shell("download", "*", "--to", "../copy", "--force")[0] == 0
    assert Path("../copy/train.py").read_text() == "AAAA"
    Path("../copy/latest").unlink()
    Path("../copy/latest").write_text("precious")
    code, _, err = shell("download", "*", "--to", "../copy", "--force")
    assert code == 2
    assert "these exist here and cannot be replaced: latest" in err
    assert sorted(path.name for path in Path("../copy").iterdir()) == ["latest", "train.py"]


def test_download_into_the_workspace_saves_versions(shell, cluster) -> None:
    cluster("AAAA")
    Path("sub").mkdir()
    Path("sub/train.py").write_text("BBBB")
    assert shell("download", "train.py", "--to", "sub", "--force")[0] == 0
    assert Path("sub/train.py").read_text() == "AAAA"
    assert shell("restore", "sub/train.py", "--local")[0] == 0
    assert Path("sub/train.py").read_text() == "BBBB"


@pytest.mark.parametrize("make", [lambda way: way.symlink_to("../outside"), Path.touch])
def test_download_never_writes_through_a_link(make, shell) -> None:
    Path("out").mkdir()
    Path("out/a").write_text("a")
    shell("push")
    Path("out/a").unlink()
    Path("out").rmdir()
    Path("../outside").mkdir()
    make(Path("out"))
    code, _, err = shell("download", "out/a", "--force")
    assert code == 2
    assert "cannot be replaced: out" in err
    assert not list(Path("../outside").iterdir())


def test_download_never_replaces_a_directory(shell, cluster) -> None:
    cluster("AAAA")
    Path("train.py").mkdir()
    assert shell("download", "train.py", "--force")[0] == 2
    assert Path("train.py").is_dir()


def test_download_waits_for_the_lock(shell, locked_by_other) -> None:
    Path("a").write_text("1")
    shell("push")
    with locked_by_other(find_workspace().state_dir):
        code, _, err = shell("download", "a", "--sync_timeout", "5")
        assert code == 124
        assert "waiting for another sync of this directory" in err
    assert shell("download", "a")[0] == 0


@pytest.fixture
def ran(shell, profile: Profile) -> Callable[[str], int]:
    """Return a function that runs a script as a task on the pushed revision, and returns the id of the task."""

    async def submit(spec: TaskSpec) -> int:
        async with Client(profile) as client:
            task = await client.tasks.create(spec)
            return (await client.tasks.wait(task.id, timeout=60)).id

    def run(script: str) -> int:
        Path("run.sh").write_text(script)
        assert shell("push")[0] == 0
        name = last(shell("status", "--json")[1])["name"]
        program_spec = ProgramSpec(workspace=f"haiworkspace://{name}", entrypoint="run.sh")
        return asyncio.run(submit(TaskSpec(version=2, name=name, spec=program_spec)))

    return run


def test_download_fetches_files_of_a_task(shell, ran) -> None:
    task = str(ran("mkdir -p out __pycache__; echo 1 > out/loss; echo 2 > __pycache__/m.pyc"))
    assert shell("pull")[0] == 0
    assert not Path("out").exists()
    assert shell("download", "--task", task)[:2] == (0, "1 files, 2 B\n")
    assert Path("out/loss").read_text() == "1\n"
    assert not Path("__pycache__").exists()
    assert shell("download", "*.pyc", "--task", task, "--to", "../copy")[0] == 0
    assert Path("../copy/__pycache__/m.pyc").read_text() == "2\n"
    assert "nothing that task" in shell("download", "x", "--task", task)[2]
    assert "task 9999 has no directory" in shell("download", "--task", "9999")[2]


def test_ls_and_cat_show_files_of_a_task(shell, ran) -> None:
    Path("out").mkdir()
    task = str(ran("echo 12 > out/loss; echo mine > notes"))
    assert [line.split()[-1] for line in shell("ls", "--task", task)[1].splitlines()] == [
        "notes",
        "out/",
    ]
    output = last(shell("ls", "out", "--task", task, "--json")[1])
    assert [(each["path"], each["size"]) for each in output["entries"]] == [("out/loss", 3)]
    assert last(shell("cat", "out/loss", "--task", task, "--json")[1])["base64"] == "MTIK"
    code, _, err = shell("cat", "run.sh", "--task", task)
    assert (code, "nothing that task" in err) == (3, True)
    assert shell("ls", "-r", "1", "--task", task)[0] == 2


def test_files_of_a_task_can_be_removed(shell, ran) -> None:
    task = ran("echo 12 > loss")
    name = find_workspace().name
    assert shell("ls", "--tasks")[1].rstrip().endswith(f"task {task} of revision 1")
    (facts,) = last(shell("ls", "--tasks", "--json")[1])["tasks"]
    assert (facts["task"], facts["unfinished"]) == (task, False)
    assert shell("remove", name, "--task", str(task), "--dry-run")[0] == 0
    # without a terminal, --yes is required
    assert shell("remove", name, "--task", str(task))[0] == 2
    code, out, err = shell("remove", name, "--task", str(task), "--task", "9999", "--yes")
    assert (code, out) == (1, f"the files that task {task} wrote are removed\n")
    assert "task 9999 has no directory" in err
    assert shell("ls", "--tasks")[1] == ""
    assert shell("remove", name, "--task", str(task), "--yes")[0] == 3
    assert shell("remove", name, "--task", "1", "-f", "x", "--yes")[0] == 2
    assert shell("ls")[0] == 0  # the workspace still exists


def test_files_that_a_task_changed_overwrite_no_local_files(shell, ran) -> None:
    Path("train.py").write_text("mine")
    task = str(ran("echo theirs > train.py"))
    assert shell("download", "--task", task)[0] == 2
    assert Path("train.py").read_text() == "mine"
    assert shell("download", "--task", task, "--to", "../copy")[0] == 0
    assert Path("../copy/train.py").read_text() == "theirs\n"


def test_conflicts_are_listed_and_resolved(shell, tmp_path: Path, monkeypatch) -> None:
    Path("a").write_text("one")
    shell("push")
    name = last(shell("status", "--json")[1])["name"]
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    shell("init", name)
    Path("a").write_text("two")
    code, _, err = shell("sync")
    assert code == 1
    assert "both sides have changed" in err
    assert "resolve PATH" in err
    assert shell("resolve")[0] == 1
    assert shell("resolve", "a", "--keep", "both")[0] == 0
    assert len(list(Path().glob("a*"))) == 2
    assert shell("resolve") == (0, "", "")


def test_resolve_takes_paths_relative_to_the_current_directory(shell, monkeypatch) -> None:
    Path("d").mkdir()
    for path in ("c", "d/c"):
        Path(path).write_text("base")
    shell("push")
    workspaces = last(shell("list", "--json")[1])["workspaces"]
    cluster = next(Path(each["remote"]) for each in workspaces if each["local"])
    for path in ("c", "d/c"):
        Path(path).write_text("ours")
        (cluster / path).write_text("theirs")
    code, _, err = shell("resolve", "typo", "--keep", "local")
    assert (code, "no conflict at 'typo'" in err) == (3, True)
    monkeypatch.chdir("d")
    assert shell("resolve", "c", "--keep", "local")[0] == 0
    assert ((cluster / "d/c").read_text(), (cluster / "c").read_text()) == ("ours", "theirs")
    code, _, err = shell("resolve", "../../x", "--keep", "local")
    assert (code, "is not in the workspace" in err) == (2, True)


def test_diff_shows_one_path_by_lines(shell, monkeypatch) -> None:
    Path("d").mkdir()
    Path("d/large").write_bytes(b"x" * (2 << 20))
    Path("link").symlink_to("a")
    shell("push")
    assert shell("diff", "d/large")[:2] == (0, "")
    Path("d/large").write_bytes(b"y" * (2 << 20))
    monkeypatch.chdir("d")
    code, out, _ = shell("diff", "large")
    assert (code, "differ; they are too large to be shown" in out) == (1, True)
    Path("../link").unlink()
    Path("../link").symlink_to("b")
    assert shell("diff", "../link")[1].splitlines()[-2:] == ["-a", "+b"]
    code, _, err = shell("diff", "nothing")
    assert (code, "nothing that is synced is called 'd/nothing'" in err) == (3, True)
    assert not (find_workspace().private_dir / "tmp").exists()


def test_check_ignore_names_the_rule(shell) -> None:
    Path(".haiignore").write_text("# no data\n/data\n")
    code, out, _ = shell("check-ignore", "data/x", "train.py")
    assert (code, out) == (0, "data/x\t.haiignore:2: /data (data)\n")
    assert shell("check-ignore", "train.py")[0] == 1


def test_options_of_hai_are_accepted(shell) -> None:
    Path("a").write_text("1")
    options = [
        "-n",
        "-i",
        "-z",
        "-d",
        "-l",
        "300",
        "-s",
        "1800",
        "-o",
        "120",
        "-t",
        "1800",
        "-p",
        "100",
    ]
    code, out, err = shell("push", "--force", *options, "--proxy", "http://x")
    assert code == 0
    assert "in sync at revision 1" in out
    assert "--no_zip is no longer needed" in err


def test_a_push_with_a_rate_limit_and_one_job_is_complete(shell) -> None:
    for number in range(20):
        Path(f"f{number}").write_bytes(b"x" * 1000 * number)
    code, out, _ = shell("push", "--bwlimit", "100M", "--jobs", "1")
    assert (code, "in sync at revision 1" in out) == (0, True)
    assert shell("push", "--dry-run")[0] == 0


def test_a_killed_push_does_not_block_the_next_one(shell) -> None:
    for number in range(10):  # more than the pipe can buffer
        Path(f"{number}").write_bytes(os.urandom(1_500_000))
    command = [sys.executable, "-m", "hai_sync.cli.main", "push", "--json", "--bwlimit", "6M"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as push:
        assert push.stdout
        next(line for line in push.stdout if json.loads(line)["event"] == "progress")
        push.kill()
    code, out, err = shell("push", "--json")
    assert (code, err) == (0, "")
    assert last(out)["uploaded"] == 10


def test_a_command_reports_that_it_waits_for_another_sync(shell, locked_by_other) -> None:
    Path("a").write_text("1")
    shell("push")
    Path("a").write_text("2")
    with ExitStack() as other:
        other.enter_context(locked_by_other(find_workspace().state_dir))
        with _waiting("push") as push:
            with pytest.raises(subprocess.TimeoutExpired):
                push.wait(0.3)
            other.close()
            assert push.wait(30) == 0
    assert shell("push", "--dry-run")[:2] == (0, "")


def test_a_waiting_command_can_be_interrupted(shell, locked_by_other) -> None:
    Path("a").write_text("1")
    shell("push")
    with locked_by_other(find_workspace().state_dir), _waiting("sync") as sync:
        sync.send_signal(signal.SIGINT)
        assert sync.wait(30) == 130


@contextmanager
def _waiting(verb: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command and wait until it reports that it waits for the lock."""
    command = [sys.executable, "-m", "hai_sync.cli.main", verb]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert process.stderr.readline() == ("waiting for another sync of this directory\n")
        yield process


def test_read_only_commands_do_not_wait_for_a_sync(shell, locked_by_other) -> None:
    Path("a").write_text("1")
    assert shell("push")[0] == 0
    with locked_by_other(find_workspace().state_dir):
        code, out, _ = shell("status")
        assert (code, "to push     0" in out) == (0, True)
        assert shell("push", "--dry-run")[0] == 0


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        pytest.param(("init", "other"), 2, id="another name for the same directory"),
        pytest.param(("init", "../x"), 2, id="a name that is none"),
        pytest.param(("sync", "--force"), 2, id="force without a winner"),
        pytest.param(("restore",), 2, id="restore what"),
        pytest.param(("restore", "nothing", "--local"), 3, id="nothing was kept"),
        pytest.param(("push", "-l", "1"), 2, id="out of range"),
        pytest.param(("push", "--bwlimit", "fast"), 2, id="a speed that is none"),
        pytest.param(("push", "--jobs", "0"), 2, id="nobody to read"),
        pytest.param(("nonsense",), 2, id="no such command"),
        pytest.param(("watch", "flush"), 1, id="no daemon"),
        pytest.param(("watch", "pause"), 1, id="no daemon to pause"),
        pytest.param(("watch", "status"), 3, id="no daemon to ask"),
        pytest.param(("download", "nothing"), 3, id="nothing to get"),
    ],
)
def test_exit_codes(argv: tuple[str, ...], code: int, shell) -> None:
    assert shell(*argv)[0] == code


def test_outdated_stubs_are_reported_with_the_setup_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "hai.v1.new_service_pb2"
    assert errors.print_error(ModuleNotFoundError("no", name=name), ["list"]) == 1
    reported = capsys.readouterr().err
    assert f"{name} was never generated" in reported
    assert "bash scripts/setup" in reported


def test_an_unreachable_server_is_reported(shell, monkeypatch) -> None:
    monkeypatch.setenv("HAI_SERVER", "127.0.0.1:1")
    code, _, err = shell("push")
    assert code == 5
    assert "127.0.0.1:1" in err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_of_80_columns(name: str, capsys) -> None:
    assert main([name, "--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    assert group().get_command(None, name) is not None  # type: ignore[arg-type]


def test_a_request_to_a_daemon_imports_few_modules() -> None:
    script = "import sys, hai_sync.cli.main, hai_sync.watch.control as c; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert not {"click", "grpc", "yaml", "asyncio", "sqlite3"} & set(done.stdout.split())


def test_a_full_disk_of_the_index_is_reported(capsys) -> None:
    error = sqlite3.OperationalError("database or disk is full")
    assert errors.print_error(error, ["push"]) == 1
    output = capsys.readouterr().err
    assert "workspaces is unreadable: database or disk is full" in output
    assert "internal" not in output


def test_ls_and_cat_show_files_of_the_cluster(shell) -> None:
    Path("out/deep").mkdir(parents=True)
    Path("out/deep/x").write_bytes(b"\xff\x00")
    Path("out/log").write_text("one\n")
    Path("out/latest").symlink_to("log")
    shell("push")
    Path("out/log").write_text("two\n")
    shell("push")
    shutil.rmtree("out")
    printing = [sys.executable, "-m", "hai_sync.cli.main", "cat", "out/log", "out/deep/x"]
    done = subprocess.run(printing, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"two\n\xff\x00", b"")
    assert shell("cat", "out/log", "-r", "1", "--json") == (
        0,
        '{"event": "cat", "path": "out/log", "base64": "b25lCg=="}\n',
        "",
    )
    code, out, _ = shell("ls", "out")
    deep, latest, log = out.splitlines()
    assert (code, deep.split()) == (0, ["2", "B", "1", "files", "deep/"])
    assert latest.split() == ["latest", "->", "log"]
    assert log.endswith("  log")
    assert shell("ls")[1].split() == ["6", "B", "2", "files", "out/"]
    output = last(shell("ls", "-R", "--json")[1])
    assert [(each["path"], each["kind"], each["size"]) for each in output["entries"]] == [
        ("out", "directory", 6),
        ("out/deep", "directory", 2),
        ("out/deep/x", "file", 2),
        ("out/latest", "symlink", 0),
        ("out/log", "file", 4),
    ]
    assert output["revision"] == 2
    assert output["entries"][3]["target"] == "log"
    assert not Path("out").exists()


def test_ls_and_cat_take_paths_relative_to_the_current_directory(shell, monkeypatch) -> None:
    Path("out").mkdir()
    Path("out/log").write_text("one\n")
    shell("push")
    monkeypatch.chdir("out")
    assert shell("ls")[1].endswith("  log\n")
    assert last(shell("cat", "log", "--json")[1])["path"] == "out/log"


def test_control_characters_in_names_are_escaped(shell, tmp_path) -> None:
    name = "a\x1b[2J\nb\r\x9b1m\u202e"
    on_cluster = Path(last(shell("status", "--json")[1])["remote"])
    (on_cluster / name).write_text("1")
    output = [shell("ls"), shell("diff"), shell("pull", "--dry-run"), shell("status")]
    shell("pull")
    Path(name).write_text("2")
    (on_cluster / name).write_text("3")
    output += [shell("pull"), shell("resolve"), shell("status")]
    shell("resolve", name, "--keep", "remote")
    output += [shell("snapshots", "--local")]
    output += [
        shell("restore", name, "--local"),
        shell("remove", find_workspace().name, "-f", "a*", "--dry-run"),
    ]
    for _, out, err in output[:3] + output[7:]:
        assert r"a\x1b[2J\nb\r\x9b1m\u202e" in out + err
    for _, out, err in output:
        assert not set("\x1b\x9b\r\u202e") & set(out + err)
        assert "\nb" not in out + err


def test_globs_are_relative_to_the_current_directory(shell, monkeypatch, tmp_path) -> None:
    for path in ("a.txt", "[x]/a.txt", "[x]/in/b.txt", "x/a.txt"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(path)
    shell("push")
    name, root, got = find_workspace().name, Path.cwd(), tmp_path / "got"
    monkeypatch.chdir("[x]")
    for arguments, on_cluster in (
        (("*.txt",), {"[x]/a.txt", "[x]/in/b.txt"}),
        (("../a.txt",), {"a.txt"}),
        ((".",), {"[x]/a.txt", "[x]/in/b.txt"}),
        (("..",), {"a.txt", "[x]/a.txt", "[x]/in/b.txt", "x/a.txt"}),
        ((str(root / "x"),), {"x/a.txt"}),
    ):
        assert shell("download", *arguments, "--to", str(got))[0] == 0
        assert {str(p.relative_to(got)) for p in got.rglob("*") if p.is_file()} == on_cluster
        shutil.rmtree(got)
    code, _, err = shell("download", "x/a.txt", "--to", str(got))
    assert (code, "called 'x/a.txt'" in err, "relative to the current directory" in err) == (
        3,
        True,
        True,
    )
    assert shell("download", "../../x")[0] == 2
    assert shell("remove", name, "-f", "*", "--dry-run")[1].splitlines() == [
        *("[x]/a.txt", "[x]/in", "[x]/in/b.txt"),
    ]
    code, _, err = shell("remove", name, "-f", "x", "--dry-run")
    assert (code, "relative to the current directory" in err) == (3, True)
    assert shell("remove", name, "-f", "../..", "--dry-run")[0] == 2
    assert shell("remove", name, "-f", "../x/a.txt", "-y")[0] == 0
    monkeypatch.chdir(tmp_path)
    assert shell("remove", name, "-f", "x", "--dry-run")[1] == "x\n"


@pytest.mark.parametrize(
    ("argv", "code", "arguments"),
    [
        pytest.param(("ls", "nowhere"), 3, "'nowhere'", id="ls_nothing"),
        pytest.param(("ls", "../.."), 2, "not in the workspace", id="ls_outside"),
        pytest.param(("ls", "-r", "99"), 3, "no revision 99", id="ls_no_revision"),
        pytest.param(("cat", "x", "out", "y"), 3, "'x' or 'y'", id="cat_nothing"),
        pytest.param(("cat", "out", "latest"), 2, "'latest' (symlink)", id="cat_no_file"),
        pytest.param(("cat",), 2, "PATH", id="cat_what"),
    ],
)
def test_errors_of_ls_and_cat(shell, argv, code, arguments) -> None:
    Path("out").mkdir()
    Path("latest").symlink_to("out")
    shell("push")
    output = shell(*argv)
    assert (output[0], output[1]) == (code, "")
    assert arguments in output[2]


@pytest.mark.parametrize("command", ["cat long", "ls -R", "diff long"])
def test_a_closed_pipe_is_no_error(shell, command: str) -> None:
    Path("long").write_text("a line\n" * 50_000)
    for number in range(2_000):
        Path(f"file-{number}-{'x' * 100}").touch()
    shell("push")
    Path("long").write_text("another line\n" * 50_000)
    program = f"{sys.executable} -m hai_sync.cli.main {command} | head -1; exit ${{PIPESTATUS[0]}}"
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}  # otherwise Python drops the rest silently
    done = subprocess.run(["bash", "-c", program], env=buffered, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (141, b"")
    assert len(done.stdout.splitlines()) == 1


def test_every_command_reports_outward_links(shell) -> None:
    Path("code.py").write_text("1")
    Path("gone").symlink_to("/no/such/path")
    Path("up").symlink_to("../..")
    for command in (["push"], ["push", "--dry-run"], ["status"], ["sync"]):
        code, out, err = shell(*command)
        assert code == (command == ["push", "--dry-run"] and "-> +" in out)
        for name, target in (("gone", "/no/such/path"), ("up", "../..")):
            assert f"skipped: {name}: it leads" in out + err
            assert target in out + err
    assert last(shell("push", "--json")[1])["skipped"].keys() == {"gone", "up"}
    code, _, err = shell("push", "--strict")
    assert (code, "nothing was changed: --strict" in err) == (1, True)


def test_links_and_strict_are_settings(shell) -> None:
    Path("gone").symlink_to("/no/such/path")
    Path("file").symlink_to("/etc/hostname")
    assert shell("config", "set", "strict", "yes")[0] == 0
    assert shell("push")[0] == 1
    assert shell("config", "set", "links", "keep")[0] == 0
    assert shell("push")[0] == 0
    assert "to push     0" in shell("status")[1]
    assert shell("config", "set", "links", "elsewhere")[0] == 2
