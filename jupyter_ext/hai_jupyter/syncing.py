"""Syncs workspaces by running `haiworkspace` as a subprocess, because the packages of clients never import one
another.

The subprocess connects to the same server as this Jupyter server, whatever the current profile is.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml

from hai.client.errors import Conflict, TimedOut
from hai.client.profile import SERVER_VARIABLES, TOKEN_VARIABLES, Profile
from hai.v1.task_spec_pb2 import TaskSpec

_CONFIG = Path(".hfai", "workspace.yml")
_TIMEOUT_SECONDS = 600.0
_MAX_PATHS = 200  # paths of each kind
_CONFLICT_HINT = "the tab of workspaces shows more; or submit without pushing"


def workspace_of(folder: Path, root: Path) -> Path | None:
    """Return the workspace that contains a folder: the nearest one, within the root of Jupyter."""
    folders = (each for each in (folder, *folder.parents) if each.is_relative_to(root))
    return next((each for each in folders if (each / _CONFIG).is_file()), None)


def name_of(workspace: Path) -> str:
    """Return the name of a workspace on the server."""
    return str(yaml.safe_load((workspace / _CONFIG).read_text("utf-8"))["name"])


async def push_for(spec: TaskSpec, root: Path, profile: Profile) -> None:
    """Push the workspace of a task and pin the task to the new revision. Raises Conflict."""
    workspace, inside = _locate(Path(spec.spec.workspace), root)
    if workspace is None:
        return
    event = await run_haiworkspace(workspace, "push", profile)
    if reason := _why_not_pushed(event):
        message = f"the workspace could not be pushed, nothing is submitted: {reason}"
        raise Conflict(message, hint=_CONFLICT_HINT)
    revision = f"haiworkspace://{name_of(workspace)}@{event['revision']}"
    spec.spec.workspace = revision if inside == "." else f"{revision}/{inside}"


def _locate(folder: Path, root: Path) -> tuple[Path | None, str]:
    """Return the workspace that contains a folder, and the path of the folder in it."""
    if not folder.is_absolute():
        return None, ""
    folder = folder.resolve()
    workspace = workspace_of(folder, root)
    return workspace, "" if workspace is None else folder.relative_to(workspace).as_posix()


def _why_not_pushed(event: dict[str, Any]) -> str:
    """Return why a push was incomplete; empty if it was complete."""
    if event.get("conflicts"):
        return f"changed on both sides: {', '.join(event['conflicts'][:5])}"
    if event.get("problems"):
        return f"cannot be synced: {', '.join(list(event['problems'])[:5])}"
    if event.get("refused") == "skipped links":
        return f"links that lead out of it: {', '.join(list(event['skipped'])[:5])}"
    return str(event.get("refused", "")) or ("" if event.get("revision") else "it has no files")


async def run_haiworkspace(folder: Path, verb: str, profile: Profile) -> dict[str, Any]:
    """Run `haiworkspace VERB --json` in a folder and return its last event. Raises Conflict if it failed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hai_sync.cli.main", verb, "--json"),
        cwd=folder,
        env={**os.environ, SERVER_VARIABLES[0]: profile.server, TOKEN_VARIABLES[0]: profile.token},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            output, error_output = await process.communicate()
    except TimeoutError as error:
        raise TimedOut(f"haiworkspace {verb} takes longer than {_TIMEOUT_SECONDS:.0f} s") from error
    finally:
        if process.returncode is None:
            process.terminate()
    if (event := last_event(output)) is not None:
        return event
    raise _failure(last_event(error_output), verb, error_output)


def last_event(output: bytes) -> dict[str, Any] | None:
    """Return the last event in an output that has one JSON object on each line."""
    for line in reversed(output.splitlines()):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") in ("status", "done", "error"):
            return event
    return None


def truncate(event: dict[str, Any]) -> dict[str, Any]:
    """Shorten each list and table to its first paths, and add the counts."""
    counts = {f"{k}_count": len(v) for k, v in event.items() if isinstance(v, (list, dict))}
    return {**{key: _first_paths(value) for key, value in event.items()}, **counts}


def _first_paths(value: Any) -> Any:
    if isinstance(value, list):
        return value[:_MAX_PATHS]
    return dict(list(value.items())[:_MAX_PATHS]) if isinstance(value, dict) else value


def _failure(event: dict[str, Any] | None, verb: str, error_output: bytes) -> Conflict:
    error = (event or {}).get("error", {})
    lines = error_output.decode(errors="replace").strip().splitlines()
    message = error.get("message") or (lines[-1] if lines else f"haiworkspace {verb} has failed")
    return Conflict(str(message), hint=str(error.get("hint", "")))
