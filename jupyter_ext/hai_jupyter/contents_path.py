"""Converts contents paths of the page to files, never outside the root directory of Jupyter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hai.client.errors import Denied, NotFound


@dataclass(frozen=True, slots=True)
class ContentsPaths:
    """The root of the file browser. `allow_hidden` allows dot files."""

    root: Path
    allow_hidden: bool = False

    def file(self, path: str) -> Path:
        """Return the file of a contents path. Raises NotFound, or Denied outside the root."""
        file = self._resolve(path)
        if not _holds(file.is_file):
            raise NotFound(f"{path!r} is not a file in {self.root}")
        return file

    def directory(self, path: str) -> Path:
        """Return the directory of a contents path; an empty path is the root. Raises NotFound, or Denied outside the
        root.
        """
        directory = self._resolve(path)
        if not _holds(directory.is_dir):
            raise NotFound(f"{path!r} is not a directory in {self.root}")
        return directory

    def contents_path(self, path: Path) -> str:
        """Return the contents path of a file."""
        return path.relative_to(self.root.resolve()).as_posix()

    def _resolve(self, path: str) -> Path:
        root = self.root.resolve()
        parts = [part for part in path.split("/") if part]
        if (
            "\0" in path
            or ".." in parts
            or (not self.allow_hidden and any(p[0] == "." for p in parts))
        ):
            raise _outside(path)
        try:
            resolved = root.joinpath(*parts).resolve()  # a link must not lead outside
        except (OSError, RuntimeError) as error:  # for example, links in a circle
            raise NotFound(f"{path!r} leads nowhere: {error}") from error
        if not resolved.is_relative_to(root):
            raise _outside(path)
        return resolved


def _holds(test: Callable[[], bool]) -> bool:
    """Return the result of a test; False if the name is too long or a directory is not readable."""
    try:
        return test()
    except OSError:
        return False


def _outside(path: str) -> Denied:
    return Denied(
        f"{path!r} is outside of what this Jupyter server shows",
        reason="OUTSIDE_ROOT",
        hint="submit a file that the file browser shows",
    )
