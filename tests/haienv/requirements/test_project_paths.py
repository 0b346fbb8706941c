"""Projects in place in directories with unusual names work, or are refused with the directory and the reason."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.haienv.cli.test_commands import BACKEND, BUILD

WORKING = [
    *("a[b]", "${HOME}", "$HOME", "trailing ", "проект", "s p", "it's", 'qu"ote'),
    *("100%41", "q?x", "~x", "a{b}", "a;b", "back\\slash"),
]
REFUSED = [
    pytest.param("a#b", "for uv a path ends at #", id="hash"),
    pytest.param("a:b", "it has a colon or unprintable characters", id="colon"),
    pytest.param("a\nb", "it has a colon or unprintable characters", id="newline"),
]


def project(folder: Path) -> Path:
    """A project with an extra, whose module contains its directory."""
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(BUILD)
    (folder / "backend.py").write_text(BACKEND)
    (folder / "inplace.py").write_text(
        "import os\nPLACE = os.fsencode(os.path.dirname(__file__))\n"
    )
    return folder


@pytest.mark.parametrize("name", WORKING)
@pytest.mark.parametrize("extra", ["", "[more]"])
def test_a_project_works_in_any_directory(
    haienv: Any, tmp_path: Path, name: str, extra: str
) -> None:
    project_dir = project(tmp_path / name)
    haienv.ok("create one --no_extend -e", f"{project_dir}{extra}")
    haienv.ok("verify one")
    python = haienv.get("one").path / "bin" / "python"
    for variables in ({"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}, {"LC_ALL": "C.UTF-8"}):
        done = subprocess.run(
            [python, "-c", "import inplace, sys; sys.stdout.buffer.write(inplace.PLACE)"],
            env=variables,
            capture_output=True,
        )
        assert done.stdout == os.fsencode(project_dir), done.stderr.decode()
    assert ("tool" in haienv.ok("freeze one --json").json) is bool(extra)
    assert haienv.ok("uninstall one inplace").out.startswith("drop ")
    assert haienv.ok("freeze one --json").json == {}


@pytest.mark.parametrize(("name", "reason"), REFUSED)
def test_unsupported_directories_are_refused(
    haienv: Any, tmp_path: Path, name: str, reason: str
) -> None:
    project_dir = project(tmp_path / name)
    failed = haienv("create one --no_extend --json -e", project_dir)
    assert failed.code == 2
    assert repr(str(project_dir)) in failed.error["message"]
    assert reason in failed.error["message"]


def test_a_missing_directory_is_reported(haienv: Any, tmp_path: Path) -> None:
    failed = haienv("create one --no_extend --json -e", tmp_path / "nowhere[more]")
    assert failed.code == 2
    assert f"'{tmp_path}/nowhere' is not a directory" in failed.error["message"]


def test_an_environment_extends_a_python_in_a_directory_with_any_letters(
    haienv: Any, tmp_path: Path
) -> None:
    """Python also decodes the `.pth` files of haienv in the encoding of the locale."""
    root = tmp_path / "среда"
    haienv.monkeypatch.setenv("HAIENV_HOME", str(root))
    project_dir = project(tmp_path / "проект")
    haienv.ok("create base --no_extend -e", project_dir)
    haienv.ok("create child --extend base")
    python = root / haienv.home.user / "child" / "current" / "bin" / "python"
    done = subprocess.run(
        [python, "-c", "import inplace"],
        env={"LC_ALL": "C", "PYTHONUTF8": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
