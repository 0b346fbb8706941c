"""What the screen says: task. A table, so it is long."""

from __future__ import annotations

TEXTS: dict[str, tuple[str, str]] = {}
