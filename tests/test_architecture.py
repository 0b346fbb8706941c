"""The rules of the rooms: import contracts, and what a start-up may load."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_imports_keep_their_direction() -> None:
    lint = Path(sys.executable).parent / "lint-imports"
    found = subprocess.run(
        [lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, env={**os.environ}
    )
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("package", ["hai", "hai_backend", "hai_tui", "haienv"])
def test_every_package_is_typed(package: str) -> None:
    assert [*ROOT.glob(f"*/{package}/py.typed")]


def test_modules_stay_readable_in_one_sitting() -> None:
    """150 lines is the habit, 400 the end: past that it is two ideas, or a table that says so in its first line."""
    long = {
        str(path.relative_to(ROOT)): lines
        for folder in ("proto/hai", "backend/hai_backend", "tui/hai_tui", "haienv/haienv")
        for path in (ROOT / folder).rglob("*.py")
        if "_pb2" not in path.name and (lines := len(path.read_text().splitlines())) > 400
    }
    assert long == {}


@pytest.mark.parametrize(
    "word", ["import pickle", "os.system(", "shell=True", " eval(", "yaml.load("]
)
def test_what_must_never_stand_in_our_code(word: str) -> None:
    folders = [
        ROOT / f for f in ("proto/hai", "backend/hai_backend", "tui/hai_tui", "haienv/haienv")
    ]
    found = [str(p) for f in folders for p in f.rglob("*.py") if word in p.read_text()]
    assert found == []
