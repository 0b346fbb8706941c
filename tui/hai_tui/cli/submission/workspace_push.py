"""Submitting from inside a workspace: it is pushed first, and the task runs exactly what was pushed.

`haiworkspace` is a program of its own; a running daemon answers it in milliseconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.output.output import note
from hai_tui.cli.settings import Settings
from hai_tui.formatting.table import printable

if TYPE_CHECKING:
    from hai.v1.task_spec_pb2 import TaskSpec

_MARK = Path(".hfai", "workspace.yml")
_SCHEME = "haiworkspace://"
_NAMED = 3  # paths in one sentence


def push_workspaces(settings: Settings, specs: Sequence[TaskSpec]) -> None:
    """Let each task whose directory lies in a workspace run the revision that is pushed now."""
    pushed: dict[Path, str] = {}
    for spec in specs:
        folder = Path(spec.spec.workspace)
        root = _root(folder) if folder.is_absolute() else None
        if root is None:
            continue
        if root not in pushed:
            pushed[root] = _push(settings, root)
        inside = str(folder.resolve().relative_to(root))
        spec.spec.workspace = pushed[root] + ("" if inside == "." else f"/{inside}")


def is_reference(workspace: str) -> bool:
    """True for a revision of a workspace: the task runs in a directory of its own then."""
    return workspace.startswith(_SCHEME)


def _root(folder: Path) -> Path | None:
    at = folder.resolve()
    return next((each for each in (at, *at.parents) if (each / _MARK).is_file()), None)


def _push(settings: Settings, root: Path) -> str:
    """Push a workspace; the reference by which tasks name its newest revision."""
    command = [sys.executable, "-m", "hai_sync.cli.main", "push", "--json"]
    command += ["--profile", settings.profile] if settings.profile else []
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    report: dict[str, Any] = events[-1] if events else {}
    if done.returncode or report.get("event") != "done" or not report["revision"]:
        raise click.ClickException(
            f"the workspace {root} could not be pushed, nothing is submitted: {_why(done, report)}; "
            "`haiworkspace push` tells more, --no-push submits the directory as it is"
        )
    for line in _lines(report.get("skipped", {})):
        note(settings, f"skipped: {line}")
    name = _name(root)
    note(settings, f"pushed {root}: the task runs revision {report['revision']} of {name}")
    return f"{_SCHEME}{name}@{report['revision']}"


def _why(done: subprocess.CompletedProcess[str], report: dict[str, Any]) -> str:
    if report.get("conflicts"):
        return f"{len(report['conflicts'])} files have changed on both sides"
    if problems := report.get("problems"):
        return f"{len(problems)} paths cannot be synced ({_named(problems)})"
    if refused := report.get("refused"):
        skipped = report.get("skipped", {}) if refused == "skipped links" else {}
        return f"{refused} ({_named(skipped)})" if skipped else str(refused)
    return _error(done.stderr.strip()) or "it has no files"


def _named(reasons: Mapping[str, str]) -> str:
    """The first paths, each with its reason."""
    lines = _lines(reasons)
    more = [f"{len(lines) - _NAMED} more"] if len(lines) > _NAMED else []
    return "; ".join([*lines[:_NAMED], *more])


def _lines(reasons: Mapping[str, str]) -> list[str]:
    return [printable(f"{path}: {why}") for path, why in reasons.items()]


def _error(said: str) -> str:
    """What a program that was asked for JSON says on its way out."""
    try:
        return str(json.loads(said.splitlines()[-1])["error"]["message"])
    except (ValueError, KeyError, TypeError, IndexError):
        return said[-500:]


def _name(root: Path) -> str:
    import yaml

    return str(yaml.safe_load((root / _MARK).read_text("utf-8"))["name"])
