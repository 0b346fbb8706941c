"""Runs uv: creates virtual environments, resolves versions, and installs the pins of a lock.

The cache is on the file system of the environments, so that uv creates hard links instead of copies. Indexes, mirrors
and credentials are settings of uv (UV_* variables, uv.toml); operators write those of all users into <root>/uv.toml.
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
from haienv.backends.installer_process import installer_error, run_installer
from haienv.errors import BuildFailed
from haienv.store.layout import CACHE_DIR, Home

_CLEARED_VARIABLES = ("VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH", "CONDA_PREFIX")
_WRITING_COMMANDS = ("venv", "pip")  # they need disk space
_CONSTRAINT_VARIABLE = "UV_CONSTRAINT"
"""A variable that applies when versions are resolved. When it installs a lock, uv would require hashes in that file."""


@dataclass(frozen=True, slots=True)
class Index:
    """The package sources that the user sets for one command."""

    url: str = ""
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    offline: bool = False

    def arguments(self, *extra_find_links: Path) -> list[str]:
        """Return the arguments for uv. `extra_find_links` are more directories of wheels."""
        options = [f"--default-index={self.url}"] if self.url else []
        locations = [*map(str, extra_find_links), *self.find_links]
        if locations:  # the option overrides the variable
            locations += filter(None, os.environ.get("UV_FIND_LINKS", "").split(","))
        options += [f"--find-links={location}" for location in locations]
        options += ["--no-index"] if self.no_index else []
        return [*options, *(["--offline"] if self.offline else [])]


@dataclass(frozen=True, slots=True)
class ResolverFiles:
    """Input and output of the resolver. `constraints` contains the versions of parents."""

    requirements: Path
    constraints: Path
    output: Path


@dataclass(frozen=True, slots=True)
class Uv:
    """The installer. `index` applies to all its commands."""

    home: Home
    index: Index = Index()

    def create_venv(self, target: Path, python: str) -> None:
        """Create an empty, relocatable virtual environment."""
        self._run("venv", "--relocatable", "--no-project", "--python", python, str(target))

    def resolve(
        self, files: ResolverFiles, *options: str, extra_find_links: Sequence[Path] = ()
    ) -> str:
        """Return pins with hashes for requirements. `options` name the Python. Pins in the output are preferred."""
        user_constraints = os.environ.get(_CONSTRAINT_VARIABLE, "").split()
        self._run(
            *("pip", "compile", str(files.requirements)),
            *(f"--constraints={each}" for each in (files.constraints, *user_constraints)),
            *("--output-file", str(files.output), "--generate-hashes"),
            *("--no-header", "--no-annotate", "--no-strip-extras", *options),
            *self.index.arguments(*extra_find_links),
            parent_packages=_read_constrained_names(files.constraints),
        )
        return files.output.read_text(encoding="utf-8")

    def install(self, python: Path, lock: Path, compile_bytecode: bool) -> None:
        """Install exactly the pins of a lock. `pip sync` ignores settings that add constraints."""
        arguments = ["pip", "sync", "--python", str(python), "--require-hashes"]
        arguments += ["--compile-bytecode"] if compile_bytecode else []
        self._run(*arguments, str(lock), *self.index.arguments())

    def install_editable(self, python: Path, urls: Sequence[str]) -> None:
        """Install projects in place, without dependencies: the lock contains these."""
        paths = [argument for url in urls for argument in ("--editable", url)]
        self._run(
            "pip", "install", "--python", str(python), "--no-deps", *paths, *self.index.arguments()
        )

    def prune_cache(self) -> None:
        """Delete unused entries of the cache."""
        self._run("cache", "prune")

    def _run(self, *arguments: str, parent_packages: Collection[str] = ()) -> None:
        """Run a command of uv. Raise BuildFailed or DiskFull if it fails."""
        if arguments[0] in _WRITING_COMMANDS and self.home.user_dir.is_dir():
            DiskReserve(self.home.user_dir).require()
        is_interactive = sys.stderr.isatty()
        command = [_find_uv(), *arguments, *([] if is_interactive else ["--quiet"])]
        stderr = None if is_interactive else subprocess.PIPE
        result = run_installer(command, self._environ(), subprocess.PIPE, stderr)
        if result.returncode:
            message = (result.stderr or "see above").strip().removeprefix("error: ")
            raise installer_error(
                f"uv {' '.join(arguments[:2])}: {message}", _hint(message, parent_packages)
            )

    def _environ(self) -> dict[str, str]:
        cleared = (*_CLEARED_VARIABLES, _CONSTRAINT_VARIABLE)
        environ = {k: v for k, v in os.environ.items() if k not in cleared}
        environ.setdefault("UV_CACHE_DIR", str(self.home.user_dir / CACHE_DIR))
        shared_config = self.home.root / "uv.toml"
        if shared_config.is_file():
            environ.setdefault("UV_CONFIG_FILE", str(shared_config))
        return environ


def _find_uv() -> str:
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError) as error:
        raise BuildFailed("uv is not installed", "pip install 'hai-platform[env]'") from error


def _read_constrained_names(constraints_file: Path) -> frozenset[str]:
    """Return the names of the packages of parents, whose versions are fixed."""
    lines = constraints_file.read_text(encoding="utf-8").splitlines()
    return frozenset(line.partition("==")[0] for line in lines)


def _hint(text: str, parent_packages: Collection[str]) -> str:
    """Return a hint for an error of uv. It mentions parents only if the error names one of their packages."""
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
