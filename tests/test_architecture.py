"""Rules of the source tree: types, length of modules, forbidden calls, tiers of tests."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.tiers import PATHS, TIERS, tier_of

ROOT = Path(__file__).parent.parent
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
PACKAGES = [ROOT / package for package in BUILD["targets"]["wheel"]["packages"]]
SUPPORT = ROOT / "tests" / "support"
MODULES = [p for d in (*PACKAGES, SUPPORT) for p in d.rglob("*.py") if "_pb2" not in p.name]


def test_every_package_is_typed() -> None:
    assert len(PACKAGES) == 7
    assert [package.name for package in PACKAGES if not (package / "py.typed").exists()] == []


def test_modules_stay_readable_in_one_sitting() -> None:
    """100 to 400 lines is normal. A longer module has two subjects."""
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES}
    assert {path: lines for path, lines in lengths.items() if lines > 400} == {}


@pytest.mark.parametrize(
    "word", ["import pickle", "os.system(", "shell=True", " eval(", "yaml.load("]
)
def test_what_must_never_stand_in_our_code(word: str) -> None:
    assert [str(path) for path in MODULES if word in path.read_text()] == []


def test_the_makefile_runs_every_tier() -> None:
    [names] = re.findall(r"^TIERS\s*:= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert names.split() == list(TIERS)


@pytest.mark.parametrize("prefix", [prefix for prefix, _ in PATHS])
def test_a_path_of_a_tier_exists(prefix: str) -> None:
    directory, _, name = prefix.rpartition("/")
    assert any(path.name.startswith(name) for path in (ROOT / "tests" / directory).iterdir())


def test_the_first_row_that_names_a_path_decides() -> None:
    tests = ROOT / "tests"
    assert tier_of(tests / "e2e/silence/test_clock.py") == "faults"
    assert tier_of(tests / "e2e/test_usage.py") == "e2e"
    assert tier_of(tests / "backend/scheduler/test_admission.py") is None
