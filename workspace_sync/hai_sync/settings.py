"""Reads and writes settings of a workspace: lines `name: value` in `.hfai/workspace.yml`."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hai_sync.workspace_dir import CONFIG, WorkspaceDir

NAMES = ("conflict", "mode", "bwlimit", "jobs", "links", "strict")
_LINE = re.compile(rf"^({'|'.join(NAMES)}):[ \t]*(['\"]?)(.*?)\2[ \t]*(?:[ \t]#.*)?$", re.MULTILINE)


def read_settings(workspace: WorkspaceDir) -> dict[str, str]:
    """Return all settings. Other lines are ignored: they do not belong to this module and may contain secrets."""
    return {name: value for name, _, value in _LINE.findall(_text(workspace))}


def save_setting(workspace: WorkspaceDir, name: str, value: str | None) -> None:
    """Set a value, or remove it if it is None. Other lines stay unchanged."""
    with _locked(workspace):
        lines = [line for line in _text(workspace).splitlines() if not line.startswith(f"{name}:")]
        lines += [] if value is None else [f"{name}: {value}"]
        new = _file(workspace).with_name(f"{CONFIG}.new")
        try:
            new.write_text("\n".join(lines) + "\n", "utf-8")
            os.replace(new, _file(workspace))
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(_file(workspace))) from error


@contextmanager
def _locked(workspace: WorkspaceDir) -> Iterator[None]:
    """Exclude other processes, because the file also has the identity of the workspace."""
    workspace.state_dir.mkdir(parents=True, exist_ok=True)
    with (workspace.state_dir / "settings.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _file(workspace: WorkspaceDir) -> Path:
    return workspace.private_dir / CONFIG


def _text(workspace: WorkspaceDir) -> str:
    return _file(workspace).read_text("utf-8", "replace")
