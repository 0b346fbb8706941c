"""`hai simulate` becomes the simulator and passes its options on as they were typed, from any directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from hai_backend.sim.cli.command import OPTIONS
from hai_tui.cli.commands.cluster import simulate as command

STAND_IN = """
import json, os, sys
print(json.dumps({"argv": sys.argv[1:], "no_color": os.environ.get("NO_COLOR", "")}))
sys.exit(7)
"""

Hai = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def hai(tmp_path: Path) -> Hai:
    """Runs `hai` where `python -m hai_backend.sim` is the stand-in, in a directory with a trap."""
    package = tmp_path / "path" / "hai_backend"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "sim.py").write_text(STAND_IN)
    here = tmp_path / "here"
    here.mkdir()
    (here / "json.py").write_text("raise SystemExit('a file of the user was imported')")
    variables = {**os.environ, "PYTHONPATH": str(package.parent)}

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        start = [sys.executable, "-P", "-m", "hai_tui.cli.main", *argv]
        return subprocess.run(start, capture_output=True, text=True, cwd=here, env=variables)

    return run


def _facts(parameters: list[click.Parameter] | tuple[click.Parameter, ...]) -> dict[object, object]:
    return {p.name: (p.opts, p.multiple, getattr(p, "is_flag", False)) for p in parameters}


def test_it_takes_what_the_simulator_takes() -> None:
    assert _facts(command.simulate.params) == _facts(OPTIONS)


@pytest.mark.parametrize(
    ("typed", "passed"),
    [
        pytest.param(["a.csv", "--nodes", "x"], ["--nodes=x", "--", "a.csv"], id="unchecked"),
        pytest.param(
            ["--packed", "--nodes", "1", "a.csv", "--nodes", "2", "b.csv", "--flat-priority"],
            ["--packed", "--nodes=1", "--nodes=2", "--flat-priority", "--", "a.csv", "b.csv"],
            id="several",
        ),
        pytest.param(["--policy", "-x", "--", "-y"], ["--policy=-x", "--", "-y"], id="dashes"),
        pytest.param(
            ["a", "--json", "-", "--gpus-per-node", "4", "--time-scale", "2"],
            ["--json=-", "--gpus-per-node=4", "--time-scale=2", "--", "a"],
            id="values",
        ),
        pytest.param([], ["--"], id="nothing"),
    ],
)
def test_options_are_passed_on_and_the_exit_code_comes_back(
    hai: Hai, typed: list[str], passed: list[str]
) -> None:
    done = hai("simulate", *typed)
    assert (done.returncode, done.stderr) == (7, "")
    assert json.loads(done.stdout) == {"argv": passed, "no_color": ""}


def test_what_is_said_to_hai_itself_holds_too(hai: Hai) -> None:
    done = hai("--json", "--no-color", "simulate", "a")
    assert json.loads(done.stdout) == {"argv": ["--json=-", "--", "a"], "no_color": "1"}


def test_without_the_simulator_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "REQUIRED_MODULE", "hai_no_such_package")
    with pytest.raises(click.ClickException, match=r"pip install 'hai-platform\[backend\]'"):
        command.simulate.main(["a"], obj=_settings(), standalone_mode=False)


def _settings() -> object:
    from hai_tui.cli.settings import Settings

    return Settings(connect=lambda profile: None, clock=lambda: 0.0)
