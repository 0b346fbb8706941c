"""Converts contents paths of the page to files, never outside of the root of Jupyter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hai.client.errors import Denied, NotFound


@dataclass(frozen=True, slots=True)
class ContentsPaths:
    """The root of the file browser. `hidden`: whether dot files are allowed."""

    root: Path
    hidden: bool = False

    def file(self, path: str) -> Path:
        """The existing file of a contents path."""
        found = self._inside(path)
        if not _exists(found.is_file):
            raise NotFound(f"{path!r} is not a file in {self.root}")
        return found

    def directory(self, path: str) -> Path:
        """The existing directory of a contents path; empty is the root."""
        found = self._inside(path)
        if not _exists(found.is_dir):
            raise NotFound(f"{path!r} is not a directory in {self.root}")
        return found

    def contents_path(self, path: Path) -> str:
        """The contents path of a file."""
        return path.relative_to(self.root.resolve()).as_posix()

    def _inside(self, path: str) -> Path:
        root = self.root.resolve()
        parts = [part for part in path.split("/") if part]
        if "\0" in path or ".." in parts or (not self.hidden and any(p[0] == "." for p in parts)):
            raise _outside(path)
        try:
            found = root.joinpath(*parts).resolve()  # links are followed, and must not lead out
        except (OSError, RuntimeError) as error:  # in a circle, say
            raise NotFound(f"{path!r} leads nowhere: {error}") from error
        if not found.is_relative_to(root):
            raise _outside(path)
        return found


def _exists(test: Callable[[], bool]) -> bool:
    """False also when the test fails: the name is too long, or a directory is not readable."""
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
