"""Preferences that the app stores between starts: theme, columns, views, history. They are one TOML file.

The file never contains a secret. A file that cannot be read is reported and never overwritten. Several apps may run at
once: each writes only the preferences that the user changed in it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hai.client.profile import config_path
from hai.host.atomic_write import replace_file

VERSION = 1


def state_path() -> Path:
    """Return the path of `tui.toml`, which is in the directory of the profile file."""
    return config_path().with_name("tui.toml")


@dataclass(slots=True)
class Preferences:
    """Preferences by name."""

    path: Path
    values: dict[str, Any] = field(default_factory=dict)
    error: str = ""  # why the file could not be read or written
    unwritten: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Preferences:
        """Read the file. If there is none, the preferences are empty."""
        try:
            values = tomllib.loads(path.read_text("utf-8-sig"))
        except FileNotFoundError:
            return cls(path)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            return cls(path, error=f"{path}: {error}")
        return cls(path, values)

    def text(self, key: str, otherwise: str = "") -> str:
        """Return a string, or `otherwise` if there is none."""
        value = self.values.get(key, otherwise)
        return value if isinstance(value, str) else otherwise

    def table(self, key: str) -> Mapping[str, Any]:
        """Return a table; empty if there is none."""
        value = self.values.get(key, {})
        return value if isinstance(value, dict) else {}

    def strings(self, key: str) -> list[str]:
        """Return a list of strings; empty if there is none."""
        value = self.values.get(key, [])
        return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []

    def put(self, key: str, value: Any) -> None:
        """Change a preference here and in the file. If writing fails, set `error` and try again at the next change."""
        self.values[key] = self.unwritten[key] = value
        stored = Preferences.load(self.path)
        self.error = stored.error or self._write(_merge(stored.values, self.unwritten))
        if not self.error:
            self.unwritten.clear()

    def _write(self, values: Mapping[str, Any]) -> str:
        import tomli_w

        data = tomli_w.dumps({**values, "version": VERSION}).encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, data)
        except OSError as error:
            return f"{self.path}: {error.strerror}"
        return ""


def _merge(stored: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored preferences with the changes. Tables are merged by entry, so views of another app stay."""
    return {**stored, **{key: _merge_values(stored.get(key), new) for key, new in changes.items()}}


def _merge_values(old: Any, new: Any) -> Any:
    return old | new if isinstance(old, dict) and isinstance(new, dict) else new
