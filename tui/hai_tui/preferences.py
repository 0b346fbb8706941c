"""Preferences that the app stores between starts: theme, columns, views, history. They are one TOML file.

The file never holds a secret. A file that can not be read is reported and never overwritten. Several apps may be
open: each writes only the preferences that were changed in it.
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
    """`tui.toml` in the directory of the profiles' file."""
    return config_path().with_name("tui.toml")


@dataclass(slots=True)
class Preferences:
    """Settings by name."""

    path: Path
    values: dict[str, Any] = field(default_factory=dict)
    error: str = ""  # why the file could not be read, or written
    unwritten: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Preferences:
        """Read the file; none is an empty state."""
        try:
            values = tomllib.loads(path.read_text("utf-8-sig"))
        except FileNotFoundError:
            return cls(path)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            return cls(path, error=f"{path}: {error}")
        return cls(path, values)

    def text(self, key: str, otherwise: str = "") -> str:
        """A word."""
        value = self.values.get(key, otherwise)
        return value if isinstance(value, str) else otherwise

    def table(self, key: str) -> Mapping[str, Any]:
        """A table of settings."""
        value = self.values.get(key, {})
        return value if isinstance(value, dict) else {}

    def strings(self, key: str) -> list[str]:
        """A list of words."""
        value = self.values.get(key, [])
        return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []

    def put(self, key: str, value: Any) -> None:
        """Change one setting here and in the file; a disk that takes nothing is told in `error`, and tried again."""
        self.values[key] = self.unwritten[key] = value
        now = Preferences.load(self.path)
        self.error = now.error or self._write(_merged(now.values, self.unwritten))
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


def _merged(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Of a table its entries: views that another app has saved stay."""
    return {**before, **{key: _of_both(before.get(key), new) for key, new in changes.items()}}


def _of_both(before: Any, new: Any) -> Any:
    return before | new if isinstance(before, dict) and isinstance(new, dict) else new
