"""Running haienv: its error messages, the user as whom it runs, and its directories."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import pytest

from hai_backend.domain.errors import Conflict
from hai_backend.environments.haienv import Haienv, HaienvFailed, extract_error
from tests.support.environments import fake_haienv

ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root starts programs as others")


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        pytest.param((), "", id="nothing"),
        pytest.param(
            ("resolving", "haienv: no index; hint: x"), "no index; hint: x", id="one line"
        ),
        pytest.param(
            ("haienv: uv says no: ", "  × none found", "  ╰─▶ Because a", "", "      b; hint: x"),
            "uv says no:\n  × none found\n  ╰─▶ Because a\n      b; hint: x",
            id="many lines",
        ),
        pytest.param(("haienv: first", "haienv: second"), "second", id="the last of two"),
        pytest.param(("Traceback", "ValueError: x", ""), "ValueError: x", id="of another program"),
    ],
)
def test_the_error_of_haienv_is_extracted_from_its_output(
    lines: tuple[str, ...], error: str
) -> None:
    assert extract_error(lines) == error


async def lines_of(haienv: Haienv, uid: int, *arguments: str) -> list[str]:
    async with haienv.build_directory(uid, {"lock.txt": "x"}, ()) as directory:
        return [line async for line in haienv.run("ada", uid, arguments, directory)]


async def test_build_directories_of_killed_builds_are_deleted_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name, hours in (("hai-build-left", 25), ("hai-build-at_work", 1), ("another", 25)):
        (tmp_path / name / "wheels").mkdir(parents=True)
        os.utime(tmp_path / name, (0, time.time() - hours * 3600))
    program = fake_haienv(tmp_path / "haienv", "")
    await lines_of(Haienv(tmp_path, pods=False, program=program), 0)
    assert set(os.listdir(tmp_path)) == {"hai-build-at_work", "another", "haienv"}


async def test_a_long_error_keeps_its_beginning(tmp_path: Path) -> None:
    lines = "\\n".join(["haienv: uv says no:", *(f"  because {n}" for n in range(200))])
    path = fake_haienv(tmp_path / "haienv", f"print('x\\n' * 999 + '{lines}'); sys.exit(1)")
    with pytest.raises(HaienvFailed) as failure:
        await lines_of(Haienv(tmp_path, pods=False, program=path), 0)
    message = str(failure.value).splitlines()
    assert (len(message), message[0], message[-1]) == (201, "uv says no:", "  because 199")


@pytest.fixture
def reporting_program(tmp_path: Path) -> str:
    """A program that any user may execute. It prints its user, its groups, and owner and mode of its home."""
    for parent in (tmp_path, *tmp_path.parents[:-2]):
        parent.chmod(parent.stat().st_mode | 0o011)
    path = tmp_path / "haienv"
    path.write_text('#!/bin/sh\nid -u; id -G; stat -c \'%u %a\' "$HOME"; touch "$HOME/wheels/x"\n')
    path.chmod(0o755)
    return str(path)


@ROOT
@pytest.mark.parametrize(
    ("uid", "nobody_uid", "owner"),
    [
        pytest.param(54321, 0, "54321", id="a user"),
        pytest.param(0, 20000, "20000", id="the default of the cluster"),
    ],
)
async def test_haienv_runs_as_the_user_in_a_private_directory(
    tmp_path: Path, reporting_program: str, uid: int, nobody_uid: int, owner: str
) -> None:
    haienv = Haienv(tmp_path, pods=True, fallback_uid=nobody_uid, program=reporting_program)
    assert await lines_of(haienv, uid) == [owner, owner, f"{owner} 700"]


async def test_haienv_never_runs_as_root_in_a_cluster(
    tmp_path: Path, reporting_program: str
) -> None:
    with pytest.raises(HaienvFailed, match="you have no uid"):
        await lines_of(Haienv(tmp_path, pods=True, program=reporting_program), 0)


@ROOT
async def test_a_program_that_the_user_may_not_execute_is_reported(tmp_path: Path) -> None:
    path = fake_haienv(tmp_path / "haienv", "")
    os.chmod(path, 0o700)
    with pytest.raises(HaienvFailed, match="cannot be started as uid 54321: Permission denied"):
        await lines_of(Haienv(tmp_path, pods=False, program=path), 54321)


@ROOT
def test_the_directory_of_a_user_keeps_its_first_owner(tmp_path: Path) -> None:
    haienv = Haienv(tmp_path / "root", pods=False)
    haienv.ensure_user_directory("ada", 54321)
    haienv.ensure_user_directory("ada", 11111)
    status = (tmp_path / "root" / "ada").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (54321, 54321, 0o755)


async def test_no_shell_interprets_the_arguments(tmp_path: Path) -> None:
    haienv = Haienv(
        tmp_path, pods=False, program=fake_haienv(tmp_path / "h", "print(*words, sep='|')")
    )
    assert await lines_of(haienv, 0, "a b", "$(id)", "; x", "*") == ["a b|$(id)|; x|*"]


async def test_long_lines_are_split_and_invalid_bytes_replaced(tmp_path: Path) -> None:
    body = "sys.stdout.buffer.write(b'x' * 20000 + bytes([10, 255, 10]))"
    haienv = Haienv(tmp_path, pods=False, program=fake_haienv(tmp_path / "h", body))
    *parts, invalid = await lines_of(haienv, 0)
    assert ("".join(parts), invalid) == ("x" * 20000, "\N{REPLACEMENT CHARACTER}")


async def test_any_exit_code_but_0_is_a_failure(tmp_path: Path) -> None:
    haienv = Haienv(
        tmp_path, pods=False, program=fake_haienv(tmp_path / "h", "sys.exit('haienv: no')")
    )
    with pytest.raises(HaienvFailed, match="no"):
        await lines_of(haienv, 0)


def test_a_cluster_server_without_root_builds_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 10001)
    with pytest.raises(Conflict, match="does not run as root"):
        Haienv(tmp_path, pods=True, program=sys.executable).require_program()
    assert Haienv(tmp_path, pods=False, program=sys.executable).require_program() == sys.executable
