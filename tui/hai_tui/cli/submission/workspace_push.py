"""Pushes the workspace that a task is submitted from, so that the task runs exactly the pushed files.

`haiworkspace` is a program of its own. If its daemon runs, it answers in milliseconds.
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

_MARKER = Path(".hfai", "workspace.yml")
_SCHEME = "haiworkspace://"
_MAX_NAMED = 3  # paths in one sentence


def push_workspaces(settings: Settings, specs: Sequence[TaskSpec]) -> None:
    """Push the workspace of each task, and let the task run the pushed revision. Tasks outside workspaces stay as they
    are.
    """
    pushed: dict[Path, str] = {}
    for spec in specs:
        folder = Path(spec.spec.workspace)
        root = _workspace_root(folder) if folder.is_absolute() else None
        if root is None:
            continue
        if root not in pushed:
            pushed[root] = _push_workspace(settings, root)
        inside = str(folder.resolve().relative_to(root))
        spec.spec.workspace = pushed[root] + ("" if inside == "." else f"/{inside}")


def is_reference(workspace: str) -> bool:
    """Return True for a revision of a workspace. Such a task runs in a directory of its own."""
    return workspace.startswith(_SCHEME)


def _workspace_root(folder: Path) -> Path | None:
    """Return the workspace directory that contains the folder; None if there is none."""
    resolved = folder.resolve()
    return next(
        (each for each in (resolved, *resolved.parents) if (each / _MARKER).is_file()), None
    )


def _push_workspace(settings: Settings, root: Path) -> str:
    """Push a workspace. Return the reference of its newest revision for tasks."""
    command = [sys.executable, "-m", "hai_sync.cli.main", "push", "--json"]
    command += ["--profile", settings.profile] if settings.profile else []
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    report: dict[str, Any] = events[-1] if events else {}
    if done.returncode or report.get("event") != "done" or not report["revision"]:
        raise click.ClickException(
            f"the workspace {root} could not be pushed, nothing is submitted: {_failure_reason(done, report)}; "
            "`haiworkspace push` tells more, --no-push submits the directory as it is"
        )
    for line in _describe_paths(report.get("skipped", {})):
        note(settings, f"skipped: {line}")
    name = _workspace_name(root)
    note(settings, f"pushed {root}: the task runs revision {report['revision']} of {name}")
    return f"{_SCHEME}{name}@{report['revision']}"


def _failure_reason(done: subprocess.CompletedProcess[str], report: dict[str, Any]) -> str:
    """Say why `haiworkspace push` has failed."""
    if report.get("conflicts"):
        return f"{len(report['conflicts'])} files have changed on both sides"
    if problems := report.get("problems"):
        return f"{len(problems)} paths cannot be synced ({_describe_first(problems)})"
    if refused := report.get("refused"):
        skipped = report.get("skipped", {}) if refused == "skipped links" else {}
        return f"{refused} ({_describe_first(skipped)})" if skipped else str(refused)
    return _error_message(done.stderr.strip()) or "it has no files"


def _describe_first(reasons: Mapping[str, str]) -> str:
    """Describe the first paths, each with its reason."""
    lines = _describe_paths(reasons)
    more = [f"{len(lines) - _MAX_NAMED} more"] if len(lines) > _MAX_NAMED else []
    return "; ".join([*lines[:_MAX_NAMED], *more])


def _describe_paths(reasons: Mapping[str, str]) -> list[str]:
    return [printable(f"{path}: {why}") for path, why in reasons.items()]


def _error_message(stderr: str) -> str:
    """Return the message of an error that a program has printed as JSON."""
    try:
        return str(json.loads(stderr.splitlines()[-1])["error"]["message"])
    except (ValueError, KeyError, TypeError, IndexError):
        return stderr[-500:]


def _workspace_name(root: Path) -> str:
    import yaml

    return str(yaml.safe_load((root / _MARKER).read_text("utf-8"))["name"])
