"""Tests of `hai up` and `hai down` with a stand-in for the server."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hai.client import profile as profiles
from hai_tui.cli.commands.cluster import up as up_command
from hai_tui.cli.server.local_server import find_server, is_server_of, wait_for_exit

STAND_IN = """
import asyncio, json, os, signal, sys
from pathlib import Path

home = Path(sys.argv[sys.argv.index("--home") + 1])
(home / "argv.json").write_text(json.dumps(sys.argv[1:]))
if "--sweep" in sys.argv:
    (home / "swept").write_text("")
    sys.exit(0)
if (home / "broken").exists():
    sys.exit("the disk is on fire")
print("I start", file=sys.stderr, flush=True)
if (home / "stubborn").exists():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

import grpc
from hai.v1 import user_service_pb2, user_pb2
from hai.v1.user_service_pb2_grpc import UserServiceServicer, add_UserServiceServicer_to_server

class Users(UserServiceServicer):
    async def WhoAmI(self, request, context):
        token = dict(context.invocation_metadata()).get("authorization")
        assert token == "Bearer s3cret", token
        return user_service_pb2.WhoAmIResponse(user=user_pb2.User(name="admin"))

async def serve():
    server = grpc.aio.server()
    add_UserServiceServicer_to_server(Users(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    (home / "admin.token").write_text("s3cret\\n")
    facts = {"address": f"127.0.0.1:{port}", "pid": os.getpid()}
    (home / "server.json.new").write_text(json.dumps(facts))
    os.replace(home / "server.json.new", home / "server.json")
    await server.wait_for_termination()

asyncio.run(serve())
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home; `python -m hai_backend.main` is the stand-in; nothing of it is left afterwards."""
    package = tmp_path / "path" / "hai_backend"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "main.py").write_text(STAND_IN)
    inherited = [p for p in sys.path if p]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package.parent), *inherited]))
    place = tmp_path / "home"
    place.mkdir()
    yield place
    if found := find_server(place):
        os.kill(found.pid, signal.SIGKILL)
        wait_for_exit(found.pid, 10)


def hai(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hai_tui.cli.main", *argv], capture_output=True, text=True
    )


def test_up_again_and_down(home: Path) -> None:
    up = hai("up", "--home", str(home), "--nodes", "3", "--gpus", "2", "--json")
    assert up.returncode == 0, up.stderr
    found = find_server(home)
    assert found is not None
    assert json.loads(up.stdout) == {"address": found.address, "pid": found.pid}
    arguments = json.loads((home / "argv.json").read_text())
    assert arguments == ["--home", str(home), "--nodes=3", "--gpus-per-node=2"]
    stored = profiles.load("local")
    assert (stored.server, stored.token, profiles.current()) == (found.address, "s3cret", "local")

    again = hai("up", "--home", str(home), "--gpus", "8")
    assert (again.returncode, find_server(home)) == (0, found)
    assert "already running" in again.stderr
    assert "to use --gpus 8: `hai down`, then `hai up` again" in again.stderr

    assert "now points to it" not in again.stderr  # it did already

    profiles.delete("local")
    again = hai("up", "--home", str(home))
    assert "profile 'local' now points to it" in again.stderr
    assert (profiles.load("local"), profiles.current()) == (stored, "local")

    down = hai("down", "--home", str(home))
    assert down.returncode == 0, down.stderr
    assert find_server(home) is None
    assert (home / "swept").exists()


def test_down_sweeps_what_a_killed_server_left(home: Path) -> None:
    assert hai("up", "--home", str(home)).returncode == 0
    found = find_server(home)
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)
    assert wait_for_exit(found.pid, 10)
    down = hai("down", "--home", str(home))
    assert down.returncode == 0
    assert "no server runs" in down.stderr
    assert (home / "swept").exists()


def test_down_kills_what_does_not_stop(home: Path) -> None:
    (home / "stubborn").touch()
    assert hai("up", "--home", str(home)).returncode == 0
    down = hai("down", "--home", str(home), "--timeout", "0.2")
    assert down.returncode == 0
    assert "was killed" in down.stderr
    assert find_server(home) is None


def test_up_shows_why_the_server_did_not_start(home: Path) -> None:
    (home / "broken").touch()
    (home / "server.log").write_text("an old line\n")
    up = hai("up", "--home", str(home))
    assert up.returncode == 1
    assert "exit code 1" in up.stderr
    assert "the disk is on fire" in up.stderr
    assert "an old line" not in up.stderr
    assert not profiles.names()


def test_up_starts_nothing_whose_profile_cannot_be_stored(home: Path, hai, monkeypatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    done = hai("up", "--home", str(home))
    assert done.code == 1
    assert "no profile can be stored" in done.err
    assert "HAI_CONFIG" in done.err
    assert not (home / "argv.json").exists(), "no server was started"


def test_of_several_at_once_one_starts_the_server_and_all_succeed(home: Path) -> None:
    argv = [sys.executable, "-m", "hai_tui.cli.main", "up", "--home", str(home), "--json"]
    starting = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    told = [up.communicate(timeout=60) for up in starting]
    assert [up.returncode for up in starting] == [0, 0, 0], told
    found = find_server(home)
    assert found is not None
    assert [json.loads(out)["pid"] for out, _ in told] == [found.pid] * 3
    log = (home / "server.log").read_text()
    assert log.count("I start") == 1


def test_who_waits_for_another_start_gives_up_in_time(home: Path) -> None:
    with (home / "up.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        up = hai("up", "--home", str(home), "--timeout", "0.1")
    assert up.returncode == 1
    assert "being started" in up.stderr
    assert "another `hai up` has not started its server" in up.stderr
    assert not (home / "argv.json").exists(), "no server was started"


def test_up_gives_up_and_leaves_nothing(home: Path) -> None:
    up = hai("up", "--home", str(home), "--timeout", "0")
    assert up.returncode == 1
    assert "was stopped" in up.stderr
    assert find_server(home) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_foreground_ends_with_its_server(home: Path, number: signal.Signals) -> None:
    argv = [sys.executable, "-m", "hai_tui.cli.main", "up", "--home", str(home), "--foreground"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, start_new_session=True) as up:
        assert up.stderr is not None
        said = []
        for line in up.stderr:
            said.append(line)
            if line.startswith("try: "):
                break
        else:
            pytest.fail("".join(said))
        if number == signal.SIGTERM:
            up.send_signal(number)
        else:
            os.killpg(up.pid, number)  # as a terminal does
        up.stderr.read()
    assert find_server(home) is None
    assert up.returncode not in (None, 0), "the stand-in dies of the signal, and we say so"


def test_down_without_a_home(tmp_path: Path) -> None:
    down = hai("down", "--home", str(tmp_path / "none"))
    assert down.returncode == 0
    assert "no server runs" in down.stderr


def test_a_pid_that_was_given_to_somebody_else_is_not_ours(home: Path) -> None:
    (home / "server.json").write_text(json.dumps({"address": "127.0.0.1:1", "pid": os.getpid()}))
    assert find_server(home) is None
    assert not is_server_of(os.getpid(), home)


@pytest.mark.parametrize("content", ["", "[]", '{"pid": 1}', '{"address": "a", "pid": "x"}'])
def test_a_damaged_server_file_counts_as_none(home: Path, content: str) -> None:
    (home / "server.json").write_text(content)
    assert find_server(home) is None


@pytest.mark.parametrize(
    ("free", "words"),
    [
        pytest.param(100, "the disk that holds {home} is full", id="full"),
        pytest.param(10**9, "the whole log is {home}/server.log", id="room"),
    ],
)
def test_a_server_that_could_not_even_say_why_is_told_by_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, words: str
) -> None:
    (tmp_path / "server.log").write_text("an old line\n")
    monkeypatch.setattr(up_command, "disk_usage", lambda path: SimpleNamespace(free=free))
    told = up_command._start_error("the server ended with exit code 1", tmp_path / "server.log", 12)
    assert words.format(home=tmp_path) in told.message
