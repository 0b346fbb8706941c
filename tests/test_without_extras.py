"""The wheel without extras, as `pip install hai-platform` installs it: commands name the extra that they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"

_HIDE = """
import importlib.abc, importlib.util, sys

hidden = set(sys.argv[1].split(","))


class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in hidden else real(name, package)
module = sys.argv[2]
sys.argv = sys.argv[2:]
from importlib import import_module

sys.exit(import_module(module).main())
"""


@pytest.mark.parametrize(
    ("module", "arguments", "hidden", "extra"),
    [
        pytest.param("haienv.cli.main", ["create", "x"], "packaging,filelock", "env", id="haienv"),
        pytest.param("hai_sync.cli.main", ["diff"], "blake3", "sync", id="haiworkspace"),
        pytest.param("hai_tui.cli.main", ["up"], "sqlalchemy", "backend", id="hai up"),
        pytest.param(
            "hai_tui.cli.main", ["simulate", "x.csv"], "sqlalchemy", "backend", id="hai simulate"
        ),
    ],
)
def test_what_is_missing_is_named(
    module: str, arguments: list[str], hidden: str, extra: str, tmp_path
) -> None:
    (tmp_path / ".hfai").mkdir()
    (tmp_path / ".hfai" / "workspace.yml").write_text("name: w\nid: 0123456789abcdef\n")
    command = [sys.executable, "-c", _HIDE, hidden, module, *arguments]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HAI_HOME": str(tmp_path / "hai")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"hai-platform[{extra}]" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_readme_names_the_extra_that_a_container_needs() -> None:
    """JupyterLab runs on the nodes. If it is missing there, the agent names the same extra."""
    from hai_backend.agent.services import jupyter

    row = next(line for line in README.read_text().splitlines() if "[`hai container`]" in line)
    assert "`[jupyter]`" in row.split("|")[3]
    assert "hai-platform[jupyter]" in jupyter._MISSING
