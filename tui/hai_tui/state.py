"""What the app remembers between starts: theme, columns, views, history. One TOML file beside the profiles.

It never holds a secret. A file that can not be read is left alone and told of, never overwritten.
"""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hai.client.profile import config_path

VERSION = 1


def state_path() -> Path:
    """`tui.toml` in the directory of the profiles' file."""
    return config_path().with_name("tui.toml")


@dataclass(slots=True)
class State:
    """Settings by name; `save` writes them all."""

    path: Path
    values: dict[str, Any] = field(default_factory=dict)
    error: str = ""  # why the file could not be read

    @classmethod
    def load(cls, path: Path) -> State:
        """Read the file; none is an empty state."""
        try:
            values = tomllib.loads(path.read_text("utf-8"))
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

    def words(self, key: str) -> list[str]:
        """A list of words."""
        value = self.values.get(key, [])
        return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []

    def put(self, key: str, value: Any) -> None:
        """Change one setting and write the file; a disk that takes nothing is told in `error`."""
        self.values[key] = value
        if not self.error:
            self._write()

    def _write(self) -> None:
        import tomli_w

        data = tomli_w.dumps({"version": VERSION, **_without_version(self.values)}).encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, self.path)
        except OSError as error:
            self.error = f"{self.path}: {error.strerror}"


def _without_version(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != "version"}
