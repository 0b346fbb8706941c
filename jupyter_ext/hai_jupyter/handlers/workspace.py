"""The workspace that a folder belongs to: how it stands, and bringing both sides together.

Syncing is `haiworkspace`'s, which is another room: it is run as a command, as a user would in a terminal.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from hai.client.errors import Conflict, NotFound, TimedOut
from hai_jupyter.failures import invalid
from hai_jupyter.handlers.base import Handler, answers

VERBS = "push|pull|sync"
_MARK = Path(".hfai", "workspace.yml")
_SECONDS = 600.0
_SHOWN = 200  # paths of each kind


class WorkspaceHandler(Handler):
    """The one that a folder of the file browser is in."""

    @answers
    async def get(self) -> Any:
        """What there is to push and to pull, and what is in conflict; `{}`: the folder is in none."""
        folder = self._folder(self.get_query_argument("path", ""))
        return {} if folder is None else shortened(await run(folder, "status"))

    def _folder(self, path: str) -> Path | None:
        places = self.backend.places
        return workspace_of(places.directory(path), places.root.resolve())


class WorkspaceVerbHandler(WorkspaceHandler):
    """push, pull, sync."""

    @answers
    async def post(self, verb: str) -> Any:
        """What was done. In a conflict nothing is, and the paths are listed."""
        path = self.body().get("path", "")
        if not isinstance(path, str):
            raise invalid(("path", "must be a folder of the file browser"))
        folder = self._folder(path)
        if folder is None:
            raise NotFound(f"{path or 'the top folder'} is not in a workspace")
        return shortened(await run(folder, verb))


def workspace_of(folder: Path, root: Path) -> Path | None:
    """The folder itself or the nearest one above it that is a workspace; none outside of what Jupyter shows."""
    shown = (one for one in (folder, *folder.parents) if one.is_relative_to(root))
    return next((one for one in shown if (one / _MARK).is_file()), None)


async def run(folder: Path, verb: str) -> dict[str, Any]:
    """The last thing that `haiworkspace VERB --json` said there. Raises Conflict when it could not."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hai_sync.cli.main", verb, "--json"),
        cwd=folder,
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
