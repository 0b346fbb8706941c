"""What options of one workspace are unless said otherwise: lines `name: value` of its `.hfai/workspace.yml`."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hai_sync.place import CONFIG, Place

_LINE = re.compile(r"^([a-z]+):[ \t]*['\"]?([A-Za-z0-9.-]*)['\"]?[ \t]*$", re.MULTILINE)
_OURS = ("name", "id")


def settings(place: Place) -> dict[str, str]:
    """All that was set, known or not."""
    found = dict(_LINE.findall(_text(place)))
    return {name: value for name, value in found.items() if name not in _OURS}


def keep_setting(place: Place, name: str, value: str | None) -> None:
    """Set it; None: it is the default again. Other lines stay as they are."""
    lines = [line for line in _text(place).splitlines() if not line.startswith(f"{name}:")]
    lines += [] if value is None else [f"{name}: {value}"]
    new = _file(place).with_name(f"{CONFIG}.new")
    new.write_text("\n".join(lines) + "\n", "utf-8")
    os.replace(new, _file(place))


def _file(place: Place) -> Path:
    return place.own / CONFIG


def _text(place: Place) -> str:
    return _file(place).read_text("utf-8", "replace")
