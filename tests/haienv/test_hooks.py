"""Hooks run in the environment after its packages changed, and only after commands of its owner."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def hook(tmp_path: Path) -> str:
    """A hook that appends its environment and its arguments to a file."""
    program = tmp_path / "a hook.py"
    program.write_text(
        "import os, sys\nfrom pathlib import Path\n"
        f"with open({str(tmp_path / 'told')!r}, 'a') as file:\n"
        "    print(os.environ['HF_ENV_NAME'], Path(sys.prefix).name, *sys.argv[1:], file=file)\n"
    )
    return f"python {shlex.quote(str(program))} '$HOME; x' "


def hook_runs(tmp_path: Path) -> list[str]:
    path = tmp_path / "told"
    return path.read_text().splitlines() if path.exists() else []


def test_hooks_run_after_each_change_of_packages(haienv: Any, hook: str, tmp_path: Path) -> None:
    haienv.ok("create one --no_extend --hook", hook)
    layers = [haienv.get("one").layer_id]
    for line in ("install one plain==1.0", "install one plain==1.0", "upgrade one --rollback"):
        haienv.ok(line)
        layers.append(haienv.get("one").layer_id)
    haienv.ok("config set one description x")
    del layers[2]  # nothing was installed the second time
    assert hook_runs(tmp_path) == [f"one {layer} $HOME; x" for layer in layers]


def test_a_failed_hook_is_reported_and_undoes_nothing(haienv: Any) -> None:
    line = f"{sys.executable} -c 'raise SystemExit(7)'"
    done = haienv("create one --no_extend plain --json --hook", line)
    assert done.code == 1
    assert done.error["reason"] == "HOOK_FAILED"
    assert "ended with code 7" in done.error["message"]
    assert haienv.get("one").is_ready
    haienv.ok("config remove one hook", line)
    haienv.ok("config append one hook no-such-program")
    assert "there is no program 'no-such-program'" in haienv("install one tool").err
    haienv.ok("config clear one hook")
    haienv.ok("uninstall one tool")


@pytest.mark.parametrize("line", ["'", "", "a\nb"])
def test_invalid_commands_are_refused(haienv: Any, line: str) -> None:
    assert haienv("create one --no_extend --hook", line).code == 2
    haienv.ok("create one --no_extend")
    assert haienv("config append one hook", line).code == 2


def test_an_interrupted_hook_keeps_the_change(haienv: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in a hook does not undo the change."""

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("haienv.hooks.run_hooks", interrupted)
    result = haienv("create one --no_extend")
    assert (result.code, "nothing" in result.err) == (130, False)
    assert haienv.get("one").is_ready


def test_hooks_of_others_never_run(haienv: Any, hook: str, tmp_path: Path) -> None:
    haienv.as_user("bob").ok("create base --no_extend fast --visibility public --hook", hook)
    assert len(hook_runs(tmp_path)) == 1
    haienv.ok("export base", tmp_path / "base.tar")
    ann = haienv.as_user("ann")
    ann.ok("create top --extend 'base[bob]' plain")
    ann.ok("import", tmp_path / "base.tar", "mine")
    ann.ok("install mine plain")
    ann.ok("list --json")
    assert len(hook_runs(tmp_path)) == 1
    assert ann.ok("config show mine --json").json["hook"] == []
