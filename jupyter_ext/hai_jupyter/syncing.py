"""Workspaces from here: syncing is `haiworkspace`'s, another room, so it is run as a user would in a terminal.

It speaks to the platform that this Jupyter server speaks to, whatever the current profile is.
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

_MARK = Path(".hfai", "workspace.yml")
_SECONDS = 600.0
_SHOWN = 200  # paths of each kind
_HINT = "the tab of workspaces shows more; or submit without pushing"


def workspace_of(folder: Path, root: Path) -> Path | None:
    """The folder itself or the nearest one above it that is a workspace; none outside of what Jupyter shows."""
    shown = (one for one in (folder, *folder.parents) if one.is_relative_to(root))
    return next((one for one in shown if (one / _MARK).is_file()), None)


def name_of(workspace: Path) -> str:
    """What the platform calls it."""
    return str(yaml.safe_load((workspace / _MARK).read_text("utf-8"))["name"])


async def push_for(spec: TaskSpec, root: Path, profile: Profile) -> None:
    """Let the task run exactly what is pushed now, if its directory is in a workspace. Raises Conflict."""
    workspace, inside = _within(Path(spec.spec.workspace), root)
    if workspace is None:
        return
    said = await run(workspace, "push", profile)
    if why := _unpushed(said):
        message = f"the workspace could not be pushed, nothing is submitted: {why}"
        raise Conflict(message, hint=_HINT)
    revision = f"haiworkspace://{name_of(workspace)}@{said['revision']}"
    spec.spec.workspace = revision if inside == "." else f"{revision}/{inside}"


def _within(folder: Path, root: Path) -> tuple[Path | None, str]:
    """The workspace of a folder, and where in it that is."""
    at = folder.resolve()
    workspace = workspace_of(at, root) if folder.is_absolute() else None
    return workspace, "" if workspace is None else at.relative_to(workspace).as_posix()


def _unpushed(said: dict[str, Any]) -> str:
    """Why it is not all there; empty: it is."""
    if said.get("conflicts"):
        return f"changed on both sides: {', '.join(said['conflicts'][:5])}"
    if said.get("problems"):
        return f"cannot be synced: {', '.join(list(said['problems'])[:5])}"
    if said.get("refused") == "skipped links":
        return f"links that lead out of it: {', '.join(list(said['skipped'])[:5])}"
    return str(said.get("refused", "")) or ("" if said.get("revision") else "it has no files")


async def run(folder: Path, verb: str, profile: Profile) -> dict[str, Any]:
    """The last thing that `haiworkspace VERB --json` said there. Raises Conflict when it could not."""
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
            told, complaint = await process.communicate()
    except TimeoutError as error:
        raise TimedOut(f"haiworkspace {verb} takes longer than {_SECONDS:.0f} s") from error
    finally:
        if process.returncode is None:
            process.terminate()
    if (said := last_event(told)) is not None:
        return said
    raise _failed(last_event(complaint), verb, complaint)


def last_event(told: bytes) -> dict[str, Any] | None:
    """One JSON object a line; the last one counts."""
    for line in reversed(told.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and found.get("event") in ("status", "done", "error"):
            return found
    return None


def shortened(said: dict[str, Any]) -> dict[str, Any]:
    """With the first paths of each list and table only, and how many there are of each."""
    counts = {f"{k}_count": len(v) for k, v in said.items() if isinstance(v, (list, dict))}
    return {**{key: _first(value) for key, value in said.items()}, **counts}


def _first(value: Any) -> Any:
    if isinstance(value, list):
        return value[:_SHOWN]
    return dict(list(value.items())[:_SHOWN]) if isinstance(value, dict) else value


def _failed(said: dict[str, Any] | None, verb: str, complaint: bytes) -> Conflict:
    facts = (said or {}).get("error", {})
    text = complaint.decode(errors="replace").strip().splitlines()
    message = facts.get("message") or (text[-1] if text else f"haiworkspace {verb} has failed")
    return Conflict(str(message), hint=str(facts.get("hint", "")))
