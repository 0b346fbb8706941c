"""Prefixes of conda, which a fake micromamba creates; everything else is real."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from haienv.backends.conda import DONE_MARK, create_prefix
from haienv.layers.gc import delete_garbage, find_garbage
from haienv.store.transaction import build_directory

FAKE_MICROMAMBA = """#!/bin/sh
echo "$@" >> "$CONDA_LOG"
[ "$1 $2 $3" = "create --yes --prefix" ] || exit 9
case "$*" in *nowhere*) echo "nothing provides nowhere"; mkdir -p "$4/bin"; exit 1 ;; esac
uv venv -q "$4" && uv pip install -q -p "$4" fast==1.0 tool
printf '#!/bin/sh\\necho of conda\\n' > "$4/bin/compiler" && chmod 755 "$4/bin/compiler"
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of the arguments of the fake micromamba."""
    folder = tmp_path / "conda"
    folder.mkdir()
    (folder / "micromamba").write_text(FAKE_MICROMAMBA)
    (folder / "micromamba").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("CONDA_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


def test_conda_creates_the_python_and_uv_installs_packages(haienv: Any, log: Path) -> None:
    haienv.ok("create one --conda gcc=12 --channel forge -p 3.11 plain app")
    haienv.ok("create two --conda gcc=12 --channel forge -p 3.11 plain")
    assert log.read_text().splitlines() == [
        f"create --yes --prefix {haienv.home.user_dir}/.conda/{prefix_name(haienv)} --channel forge python=3.11 gcc=12"
    ]
    assert haienv.ok("freeze one --own --json").json == {"app": "1.0", "plain": "2.0"}
    assert haienv.run("one", "import app, fast; print(fast.VERSION)") == "1.0"
    run = ["python", "-m", "haienv", "run", "one", "--", "compiler"]
    assert subprocess.run(run, capture_output=True, text=True).stdout == "of conda\n"
    haienv.ok("remove one two --yes")
    haienv.ok("gc --days 0 --yes")
    assert [*(haienv.home.user_dir / ".conda").iterdir()] == []


def prefix_name(haienv: Any) -> str:
    (prefix,) = (haienv.home.user_dir / ".conda").iterdir()
    return str(prefix.name)


def test_a_failed_create_leaves_nothing(haienv: Any, log: Path) -> None:
    refused = haienv("create one --conda nowhere -p 3.11")
    assert (refused.code, "nothing provides nowhere" in refused.err) == (1, True)
    assert haienv.ok("list --names").out == ""
    assert [*(haienv.home.user_dir / ".conda").iterdir()] == []


def test_doctor_deletes_an_incomplete_prefix(haienv: Any, log: Path) -> None:
    haienv.ok("create one --conda gcc -p 3.11")
    (haienv.home.user_dir / ".conda" / "half").mkdir()
    assert haienv("doctor").code == 1
    haienv.ok("doctor --fix")
    assert len([*(haienv.home.user_dir / ".conda").iterdir()]) == 1


def test_a_prefix_that_another_command_creates_is_not_touched(haienv: Any, log: Path) -> None:
    haienv.ok("create one --conda gcc -p 3.11")
    prefix = haienv.home.user_dir / ".conda" / prefix_name(haienv)
    (prefix / DONE_MARK).unlink()
    with build_directory(haienv.home) as work:  # of a running process
        (work / prefix.name).touch()
        busy = haienv("create two --conda gcc -p 3.11")
        assert (busy.code, "is creating the same conda prefix" in busy.err) == (1, True)
        haienv.ok("doctor --fix")
        assert (prefix / "bin" / "compiler").exists()
    haienv.ok("create two --conda gcc -p 3.11")


def test_a_prefix_in_use_is_not_deleted(haienv: Any, log: Path) -> None:
    haienv.ok("create one --conda gcc -p 3.11")
    haienv.ok("remove one --yes")
    found = find_garbage(haienv.home, 0)
    haienv.ok("create two --conda gcc -p 3.11 plain")
    delete_garbage(haienv.home, found)
    assert haienv.run("two", "import fast, plain; print(fast.VERSION)") == "1.0"
    haienv.ok("remove two --yes")
    aged = time.time() - 8 * 86400
    os.utime(haienv.home.user_dir / ".conda" / prefix_name(haienv) / DONE_MARK, (aged, aged))
    create_prefix(haienv.home, ["python=3.11", "gcc"], [])  # an environment extends the prefix now
    assert find_garbage(haienv.home, 7) == []


def test_a_missing_conda_is_reported(haienv: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haienv.backends.conda.PROGRAMS", ("no-conda-here",))
    assert haienv("create one --conda gcc -p 3.11").code == 3
    assert haienv("create one --conda gcc --no_extend").code == 2
