"""The setup scripts report what they wait for and what is missing. The tests replace programs on PATH."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKED = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4711 (unattended-upgr)"


def shell(script: str, programs: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script that has sourced scripts/common, with the programs of this directory first on PATH."""
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", **variables}
    return subprocess.run(
        ["bash", "-euc", f"source {ROOT}/scripts/common\n{script}"],
        env=environment,
        cwd=programs,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def program(tmp_path: Path):
    """Puts a shell script on PATH under a name."""

    def put(name: str, script: str) -> Path:
        file = tmp_path / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        return tmp_path

    return put


def test_a_lock_of_another_package_manager_is_waited_for(program) -> None:
    path = program(
        "apt-get",
        f"echo run >>calls; [ $(wc -l <calls) -gt 2 ] || {{ echo '{LOCKED}' >&2; exit 100; }}",
    )
    done = shell("apt_install tmux; echo installed", path, HAI_APT_PAUSE="0")
    assert done.stdout == "installed\n"
    assert done.stderr == (f"waiting for another package manager, to install tmux: {LOCKED}\n"), (
        "once, with the process that holds it"
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(LOCKED, "another package manager has held its lock for too long", id="lock"),
        pytest.param("E: Unable to locate package", "apt-get cannot install tmux", id="other"),
    ],
)
def test_what_apt_says_is_passed_on(program, error: str, said: str) -> None:
    path = program("apt-get", f"echo '{error}' >&2; exit 100")
    done = shell("apt_install tmux", path, HAI_APT_SECONDS="0")
    assert done.returncode == 1
    assert said in done.stderr
    assert error in done.stderr


def test_without_a_program_it_says_what_is_skipped(program) -> None:
    path = program("apt-get", "echo 'E: Unable to locate package' >&2; exit 100")
    done = shell('tool hai-lacks hai-package "tests of it"', path)
    assert done.returncode == 0
    assert done.stderr.endswith(
        "no hai-lacks here: tests of it will be skipped (Debian: apt-get install hai-package)\n"
    )


def test_a_program_that_is_there_is_not_installed(program) -> None:
    path = program("apt-get", "echo called >&2; exit 100")
    assert shell('tool sh dash "all"', path).stderr == ""


@pytest.mark.parametrize(("free", "code"), [(3_000_000, 0), (100_000, 1)])
def test_a_disk_with_little_room_is_told_before_anything_is_done(
    program, free: int, code: int
) -> None:
    path = program("df", f"echo head; echo /dev/vda 9 9 {free} 9% /")
    done = shell("need_disk /data 2000", path)
    assert done.returncode == code
    told = "/data has 97 MB free, and 2000 MB are needed: make room, or set TMPDIR"
    assert done.stderr.startswith(told) == bool(code)


def test_loopback_is_reached_without_the_proxy(tmp_path: Path) -> None:
    done = shell("echo $no_proxy; echo $NO_PROXY", tmp_path, no_proxy="example.org")
    assert done.stdout.splitlines() == ["127.0.0.1,localhost,::1,example.org"] * 2


def test_a_second_one_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    script = tmp_path / "setup"
    script.write_text(
        f'source {ROOT}/scripts/common\none_at_a_time {script} "$@"\n'
        "echo $1 begins >&2; [ $1 = two ] || read -r _; echo $1 >>done\n"
    )

    def start(name: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-eu", str(script), name],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    first = start("one")
    assert first.stderr is not None
    assert first.stderr.readline() == "one begins\n"
    second = start("two")
    assert second.stderr is not None
    told = f"{script} runs already in this checkout: waiting for its end\n"
    assert second.stderr.readline() == told
    assert not (tmp_path / "done").exists()
    first.communicate("go on\n", timeout=20)
    second.communicate(timeout=20)
    assert (tmp_path / "done").read_text().split() == ["one", "two"]
