"""A table of errors and the exit codes that scripts rely on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from hai.client import errors
from hai.client.client import Client
from hai.client.fake.server import FakeTransport
from hai.client.fake.world import World
from hai.client.profile import Profile
from hai_tui.cli.main import main

CODES = [
    pytest.param(errors.NotFound("no"), 3, id="not found"),
    pytest.param(errors.Denied("no"), 4, id="denied"),
    pytest.param(errors.Unauthenticated("no"), 4, id="unauthenticated"),
    pytest.param(errors.Unreachable("no"), 5, id="unreachable"),
    pytest.param(errors.TimedOut("no"), 124, id="timed out"),
    pytest.param(errors.Invalid("no", (errors.Violation("a.b", "x"),)), 2, id="invalid"),
    pytest.param(
        errors.Ambiguous("no", (errors.Candidate(1, "t", "u", "RUNNING"),)), 2, id="ambiguous"
    ),
    pytest.param(errors.UsageError("no"), 2, id="usage"),
    pytest.param(errors.Conflict("no"), 1, id="conflict"),
    pytest.param(errors.LimitReached("no"), 1, id="limit"),
    pytest.param(errors.ServerError("no"), 1, id="server fault"),
    pytest.param(RuntimeError("no"), 1, id="our own fault"),
    pytest.param(OSError(28, "No space left on device", "/x"), 1, id="disk full"),
    pytest.param(KeyboardInterrupt(), 130, id="interrupted"),
]


class Failing:
    """A transport whose calls all fail."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def stub(self, stub_class: object) -> Any:
        return FakeTransport(World()).stub(stub_class)

    async def unary(self, call: Any, request: Any, *, retry: bool = False) -> Any:
        raise self.error

    async def close(self) -> None:
        pass


def run(error: BaseException, *argv: str) -> int:
    transport: Any = Failing(error)
    return main(argv, connect=lambda profile: Client(Profile(), transport=transport))


@pytest.mark.parametrize(("error", "code"), CODES)
def test_exit_code(error: BaseException, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(error, "list") == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(("error", "code"), [c for c in CODES if c.id != "interrupted"])
def test_errors_for_programs(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(error, "list", "--json") == code
    facts = json.loads(capsys.readouterr().err)["error"]
    assert facts["exit_code"] == code
    assert {"reason", "message", "hint"} <= set(facts)


def test_violations_and_candidates_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    run(errors.Invalid("no", (errors.Violation("a.b", "x", 3, 7),)), "list")
    run(errors.Ambiguous("no", (errors.Candidate(1, "t", "u", "RUNNING"),)), "list")
    said = capsys.readouterr().err
    assert "a.b: x (line 3, column 7)" in said
    assert "1  t  u  RUNNING" in said


def test_debug_shows_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(errors.NotFound("no"), "list", "--debug") == 3
    assert "Traceback" in capsys.readouterr().err


_HUGE = "9" * 23


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        (f"status {_HUGE}", 3, f"there is no task {_HUGE}"),
        (f"stop {_HUGE}", 3, f"there is no task {_HUGE}"),
        (f"token revoke {_HUGE}", 2, f"a number is too large: {_HUGE}"),
        (f"token revoke -- -{_HUGE}", 2, f"a number is too small: -{_HUGE}"),
        (f"logs 1 --tail {_HUGE}", 2, "too large"),
        (f"events 1 --after {_HUGE}", 2, "too large"),
        (f"shell 1 -r {_HUGE}", 2, "too large"),
        (f"audit -n {_HUGE}", 2, "too large"),
        (f"container create zz --memory {_HUGE}", 2, "too large"),
        (f"quota set ada {_HUGE}", 2, "too large"),
        (f"dataset create big:1 /x --bytes {_HUGE}", 2, "too large"),
        (f"exec ls -- -n {_HUGE}", 2, "too large"),
        (f"exec ls -- -ls {_HUGE}", 2, "too large"),
        ("logs 1 --since 99999999999999d", 2, "too long; the longest span is 20000d"),
        ("message send hello --expires 9999999999999d", 2, "too long"),
        (f"logs 1 --since {'9' * 400}d", 2, "too long"),
        ("logs 1 -r 0-99999999999", 2, "'0-99999999999' is more than 10000 ranks"),
        ("usage 1 -r 0-9999,10000", 2, "more than 10000 ranks"),
        (f"usage 1 -r {_HUGE}", 2, "is not a rank"),
        ("logs 1 -r 2-1", 2, "'2-1' ends before it begins; write 1-2"),
    ],
)
def test_a_number_that_finds_no_room_is_told(hai: Any, line: str, code: int, told: str) -> None:
    ended = hai.line(f"hai {line}")
    assert told in ended.err
    assert ended.code == code


def test_stubs_older_than_the_checkout_ask_for_the_set_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "hai.v1.new_service_pb2"
    assert run(ModuleNotFoundError(f"No module named {name!r}", name=name), "list") == 1
    said = capsys.readouterr().err
    assert said.startswith(f"hai: {name} was never generated")
    assert "hint: bash scripts/setup" in said


_INTERRUPTED_WHILE_LOADING = """
import os, signal, sys

class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Impatient())
from hai_tui.cli.start import main
sys.exit(main())
"""


def test_ctrl_c_while_modules_load_ends_it_without_a_word() -> None:
    command = [sys.executable, "-c", _INTERRUPTED_WHILE_LOADING]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_who_ignores_ctrl_c_is_obeyed() -> None:
    """`nohup` and scripts ignore SIGINT for programs that they start in the background."""
    command = [sys.executable, "-c", _INTERRUPTED_WHILE_LOADING, "--version"]
    ended = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("hai ")


def test_a_directory_that_was_removed_is_said_to_be_so(hai, tmp_path, monkeypatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    done = hai("exec", "ls", "--", "-n", "1")
    assert done.code == 1
    assert done.err == "hai: the current directory was removed\n  hint: cd to another directory\n"
