"""Runs uv: creates virtual environments, resolves versions, and installs the pins of a lock.

The cache is on the same file system as the environments, so that files are shared by hard links instead of copied.
Indexes, mirrors and credentials are uv's settings (UV_* variables, uv.toml); <root>/uv.toml holds those of a site.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from hai.host.disk_reserve import DiskReserve
from haienv.backends.subprocess_guard import run
from haienv.errors import BuildFailed, installer_failed
from haienv.store.layout import CACHE_DIR, Home

_CLEARED_VARIABLES = ("VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH", "CONDA_PREFIX")
_WRITING_COMMANDS = ("venv", "pip")  # commands that need disk space; others free some
_CONSTRAINT_VARIABLE = "UV_CONSTRAINT"
"""Applied when versions are resolved, not when a lock is installed: uv would require hashes of constraints too."""


@dataclass(frozen=True, slots=True)
class Index:
    """Package sources that the user sets for one command."""

    url: str = ""
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    offline: bool = False

    def arguments(self, *extra_find_links: Path) -> list[str]:
        """Command-line arguments for uv; `extra_find_links` are more directories of wheels."""
        options = [f"--default-index={self.url}"] if self.url else []
        locations = [*map(str, extra_find_links), *self.find_links]
        if locations:  # the option would override the variable
            locations += filter(None, os.environ.get("UV_FIND_LINKS", "").split(","))
        options += [f"--find-links={location}" for location in locations]
        options += ["--no-index"] if self.no_index else []
        return [*options, *(["--offline"] if self.offline else [])]


@dataclass(frozen=True, slots=True)
class ResolverFiles:
    """Input and output of the resolver; `constraints` are the versions of parents."""

    requirements: Path
    constraints: Path
    output: Path


@dataclass(frozen=True, slots=True)
class Uv:
    """The installer; `index` applies to all its commands."""

    home: Home
    index: Index = Index()

    def create_venv(self, target: Path, python: str) -> None:
        """Create an empty, relocatable virtual environment."""
        self._run("venv", "--relocatable", "--no-project", "--python", python, str(target))

    def resolve(
        self, files: ResolverFiles, *options: str, extra_find_links: Sequence[Path] = ()
    ) -> str:
        """Pins with hashes for requirements; `options` name the Python. Pins in the output file are preferred."""
        user_constraints = os.environ.get(_CONSTRAINT_VARIABLE, "").split()
        self._run(
            *("pip", "compile", str(files.requirements)),
            *(f"--constraints={each}" for each in (files.constraints, *user_constraints)),
            *("--output-file", str(files.output), "--generate-hashes"),
            *("--no-header", "--no-annotate", "--no-strip-extras", *options),
            *self.index.arguments(*extra_find_links),
            parent_packages=_constrained_names(files.constraints),
        )
        return files.output.read_text(encoding="utf-8")

    def install(self, python: Path, lock: Path, compiled: bool) -> None:
        """Install exactly the pins of a lock; `pip sync` ignores uv settings that would add constraints."""
        arguments = ["pip", "sync", "--python", str(python), "--require-hashes"]
        arguments += ["--compile-bytecode"] if compiled else []
        self._run(*arguments, str(lock), *self.index.arguments())

    def install_editable(self, python: Path, urls: Sequence[str]) -> None:
        """Install projects in place; the lock already contains their dependencies."""
        paths = [argument for url in urls for argument in ("--editable", url)]
        self._run(
            "pip", "install", "--python", str(python), "--no-deps", *paths, *self.index.arguments()
        )

    def prune(self) -> None:
        """Delete unused entries of the cache."""
        self._run("cache", "prune")

    def _run(self, *arguments: str, parent_packages: Collection[str] = ()) -> None:
        if arguments[0] in _WRITING_COMMANDS and self.home.user_dir.is_dir():
            DiskReserve(self.home.user_dir).require()
        interactive = sys.stderr.isatty()
        command = [_binary(), *arguments, *([] if interactive else ["--quiet"])]
        stderr = None if interactive else subprocess.PIPE
        done = run(command, self._environ(), subprocess.PIPE, stderr)
        if done.returncode:
            message = (done.stderr or "see above").strip().removeprefix("error: ")
            raise installer_failed(
                f"uv {' '.join(arguments[:2])}: {message}", _hint(message, parent_packages)
            )

    def _environ(self) -> dict[str, str]:
        cleared = (*_CLEARED_VARIABLES, _CONSTRAINT_VARIABLE)
        environ = {k: v for k, v in os.environ.items() if k not in cleared}
        environ.setdefault("UV_CACHE_DIR", str(self.home.user_dir / CACHE_DIR))
        site = self.home.root / "uv.toml"
        if site.is_file():
            environ.setdefault("UV_CONFIG_FILE", str(site))
        return environ


def _binary() -> str:
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError) as error:
        raise BuildFailed("uv is not installed", "pip install 'hai-platform[env]'") from error


def _constrained_names(constraints_file: Path) -> frozenset[str]:
    """Names of the packages of parents, whose versions are fixed."""
    lines = constraints_file.read_text(encoding="utf-8").splitlines()
    return frozenset(line.partition("==")[0] for line in lines)


def _hint(text: str, parent_packages: Collection[str]) -> str:
    """A hint for an error of uv; it mentions parents only if the error names one of their packages."""
    if "was not found" in text:
        return "check the name; --index and --find-links add package sources"
    if "No solution found" in text:
        names = set(re.findall(r"[a-z0-9][a-z0-9._-]*[a-z0-9]", text.lower()))
        if not names.isdisjoint(parent_packages):
            return "versions of parents are fixed; --force lets this environment install other ones"
        return "request other versions, or add a package source with --index or --find-links"
    if "401 Unauthorized" in text or "403 Forbidden" in text:
        return "passwords in URLs are not stored: put it into ~/.netrc, or write ${VARIABLE} in the URL"
    if "No interpreter found" in text:
        return "`uv python list` shows the installed interpreters; -p also takes a path"
    return ""
