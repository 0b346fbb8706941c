"""What options of one workspace are unless said otherwise: lines `name: value` of its `.hfai/workspace.yml`."""

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


def settings(place: WorkspaceDir) -> dict[str, str]:
    """All that was set. Other lines are none of ours, and may hold what nobody shall see."""
    return {name: value for name, _, value in _LINE.findall(_text(place))}


def keep_setting(place: WorkspaceDir, name: str, value: str | None) -> None:
    """Set it; None: it is the default again. Other lines stay as they are."""
    with _turn(place):
        lines = [line for line in _text(place).splitlines() if not line.startswith(f"{name}:")]
        lines += [] if value is None else [f"{name}: {value}"]
        new = _file(place).with_name(f"{CONFIG}.new")
        try:
            new.write_text("\n".join(lines) + "\n", "utf-8")
            os.replace(new, _file(place))
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(_file(place))) from error


@contextmanager
def _turn(place: WorkspaceDir) -> Iterator[None]:
    """One process at a time: the file says which workspace this is, too."""
    place.state.mkdir(parents=True, exist_ok=True)
    with (place.state / "settings.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _file(place: WorkspaceDir) -> Path:
    return place.own / CONFIG


def _text(place: WorkspaceDir) -> str:
    return _file(place).read_text("utf-8", "replace")
