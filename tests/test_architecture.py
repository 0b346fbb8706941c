"""The rules of the rooms: import contracts, types, length, and what never stands in our code."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
PACKAGES = [ROOT / package for package in BUILD["targets"]["wheel"]["packages"]]
SUPPORT = ROOT / "tests" / "support"
MODULES = [p for d in (*PACKAGES, SUPPORT) for p in d.rglob("*.py") if "_pb2" not in p.name]


def test_imports_keep_their_direction() -> None:
    lint = Path(sys.executable).parent / "lint-imports"
    found = subprocess.run(
        [lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, env={**os.environ}
    )
    assert found.returncode == 0, found.stdout


def test_every_package_is_typed() -> None:
    assert len(PACKAGES) == 7
    assert [package.name for package in PACKAGES if not (package / "py.typed").exists()] == []


def test_modules_stay_readable_in_one_sitting() -> None:
    """150 lines is the habit, 400 the end: past that it is two ideas, or a table that says so in its first line."""
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES}
    assert {path: lines for path, lines in lengths.items() if lines > 400} == {}


@pytest.mark.parametrize(
    "word", ["import pickle", "os.system(", "shell=True", " eval(", "yaml.load("]
)
def test_what_must_never_stand_in_our_code(word: str) -> None:
    assert [str(path) for path in MODULES if word in path.read_text()] == []
