"""Syncs workspaces by running `haiworkspace` as a subprocess, since packages of clients never import one another.

It connects to the same server as this Jupyter server, whatever the current profile is.
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
_SECONDS = 600.0
_MAX_PATHS = 200  # paths of each kind
_HINT = "the tab of workspaces shows more; or submit without pushing"


def workspace_of(folder: Path, root: Path) -> Path | None:
    """The workspace of a folder: itself or the nearest one above it, within the root of Jupyter."""
    visible = (one for one in (folder, *folder.parents) if one.is_relative_to(root))
    return next((one for one in visible if (one / _CONFIG).is_file()), None)


def name_of(workspace: Path) -> str:
    """The name of a workspace on the server."""
    return str(yaml.safe_load((workspace / _CONFIG).read_text("utf-8"))["name"])


async def push_for(spec: TaskSpec, root: Path, profile: Profile) -> None:
    """Pushes the workspace of a task and pins the task to the new revision. Raises Conflict."""
    workspace, inside = _within(Path(spec.spec.workspace), root)
    if workspace is None:
        return
    event = await run(workspace, "push", profile)
    if why := _why_not_pushed(event):
        message = f"the workspace could not be pushed, nothing is submitted: {why}"
        raise Conflict(message, hint=_HINT)
    revision = f"haiworkspace://{name_of(workspace)}@{event['revision']}"
    spec.spec.workspace = revision if inside == "." else f"{revision}/{inside}"


def _within(folder: Path, root: Path) -> tuple[Path | None, str]:
    """The workspace of a folder, and the path of the folder in it."""
    at = folder.resolve()
    workspace = workspace_of(at, root) if folder.is_absolute() else None
    return workspace, "" if workspace is None else at.relative_to(workspace).as_posix()


def _why_not_pushed(event: dict[str, Any]) -> str:
    """Why a push was incomplete; empty: it was complete."""
    if event.get("conflicts"):
        return f"changed on both sides: {', '.join(event['conflicts'][:5])}"
    if event.get("problems"):
        return f"cannot be synced: {', '.join(list(event['problems'])[:5])}"
    if event.get("refused") == "skipped links":
        return f"links that lead out of it: {', '.join(list(event['skipped'])[:5])}"
    return str(event.get("refused", "")) or ("" if event.get("revision") else "it has no files")


async def run(folder: Path, verb: str, profile: Profile) -> dict[str, Any]:
    """The last event of `haiworkspace VERB --json` in a folder. Raises Conflict if it failed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hai_sync.cli.main", verb, "--json"),
        cwd=folder,
        env={**os.environ, SERVER_VARIABLES[0]: profile.server, TOKEN_VARIABLES[0]: profile.token},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_SECONDS):
            output, error_output = await process.communicate()
    except TimeoutError as error:
        raise TimedOut(f"haiworkspace {verb} takes longer than {_SECONDS:.0f} s") from error
    finally:
        if process.returncode is None:
            process.terminate()
    if (event := last_event(output)) is not None:
        return event
    raise _failed(last_event(error_output), verb, error_output)


def last_event(output: bytes) -> dict[str, Any] | None:
    """The last event in an output of one JSON object a line."""
    for line in reversed(output.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and found.get("event") in ("status", "done", "error"):
            return found
    return None


def truncate(event: dict[str, Any]) -> dict[str, Any]:
    """Shortens each list and table to its first paths, and adds the counts."""
    counts = {f"{k}_count": len(v) for k, v in event.items() if isinstance(v, (list, dict))}
    return {**{key: _first(value) for key, value in event.items()}, **counts}


def _first(value: Any) -> Any:
    if isinstance(value, list):
        return value[:_MAX_PATHS]
    return dict(list(value.items())[:_MAX_PATHS]) if isinstance(value, dict) else value


def _failed(event: dict[str, Any] | None, verb: str, error_output: bytes) -> Conflict:
    facts = (event or {}).get("error", {})
    text = error_output.decode(errors="replace").strip().splitlines()
    message = facts.get("message") or (text[-1] if text else f"haiworkspace {verb} has failed")
    return Conflict(str(message), hint=str(facts.get("hint", "")))
