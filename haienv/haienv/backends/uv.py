"""uv as a subprocess: makes the skeleton of a layer, resolves, and installs exactly what a lock says.

The cache lies on the same mount as the environments, so that files are shared by hard links instead of copied.
Indexes, mirrors and credentials are uv's own settings (UV_* variables, uv.toml), for a whole site in <root>/uv.toml.
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
_WRITING_COMMANDS = ("venv", "pip")  # commands that take room; others make some
_CONSTRAINT_VARIABLE = "UV_CONSTRAINT"
"""They count when versions are chosen; those of a lock are chosen, and uv would want hashes of these too."""


@dataclass(frozen=True, slots=True)
class Index:
    """Where packages come from, when the user says so for one command."""

    url: str = ""
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    offline: bool = False

    def arguments(self, *extra_find_links: Path) -> list[str]:
        """As uv takes them; `places` are more to look for wheels."""
        options = [f"--default-index={self.url}"] if self.url else []
        locations = [*map(str, extra_find_links), *self.find_links]
        if locations:  # the option would take the place of the variable
            locations += filter(None, os.environ.get("UV_FIND_LINKS", "").split(","))
        options += [f"--find-links={location}" for location in locations]
        options += ["--no-index"] if self.no_index else []
        return [*options, *(["--offline"] if self.offline else [])]


@dataclass(frozen=True, slots=True)
class Uv:
    """The installer. `index` counts for everything that it does."""

    home: Home
    index: Index = Index()

    def create_venv(self, target: Path, python: str) -> None:
        """An empty, relocatable virtual environment."""
        self._run("venv", "--relocatable", "--no-project", "--python", python, str(target))

    def resolve(
        self,
        python: Path,
        requirements: Path,
        constraints_file: Path,
        output_file: Path,
        extra_find_links: Sequence[Path] = (),
        upgrade: bool = False,
    ) -> str:
        """Pins with hashes for what is wanted; what `answer` holds before is preferred."""
        arguments = [
            *_compile_arguments(requirements, constraints_file, output_file),
            "--python",
            str(python),
        ]
        arguments += ["--upgrade"] if upgrade else []
        self._run(
            *arguments,
            *self.index.arguments(*extra_find_links),
            parent_packages=_constrained_names(constraints_file),
        )
        return output_file.read_text(encoding="utf-8")

    def resolve_for(
        self, version: str, requirements: Path, constraints_file: Path, output_file: Path
    ) -> str:
        """The same for a Python of a cluster: a version, Linux."""
        arguments = [
            *_compile_arguments(requirements, constraints_file, output_file),
            "--python-version",
            version,
        ]
        arguments += ["--python-platform", "linux", *self.index.arguments()]
        self._run(*arguments, parent_packages=_constrained_names(constraints_file))
        return output_file.read_text(encoding="utf-8")

    def install(self, python: Path, lock: Path, compiled: bool) -> None:
        """Exactly the pins of a lock, each with its hash; `sync` asks no setting of uv what else they should be."""
        arguments = ["pip", "sync", "--python", str(python), "--require-hashes"]
        arguments += ["--compile-bytecode"] if compiled else []
        self._run(*arguments, str(lock), *self.index.arguments())

    def install_editable(self, python: Path, urls: Sequence[str]) -> None:
        """Projects in place; what they depend on is in the lock already."""
        paths = [argument for url in urls for argument in ("--editable", url)]
        self._run(
            "pip", "install", "--python", str(python), "--no-deps", *paths, *self.index.arguments()
        )

    def prune(self) -> None:
        """Drop from the cache what no longer serves."""
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
        parent_packages = {k: v for k, v in os.environ.items() if k not in cleared}
        parent_packages.setdefault("UV_CACHE_DIR", str(self.home.user_dir / CACHE_DIR))
        site = self.home.root / "uv.toml"
        if site.is_file():
            parent_packages.setdefault("UV_CONFIG_FILE", str(site))
        return parent_packages


def _compile_arguments(requirements: Path, constraints_file: Path, output_file: Path) -> list[str]:
    user_constraints = os.environ.get(_CONSTRAINT_VARIABLE, "").split()
    return [
        *("pip", "compile", str(requirements)),
        *(f"--constraints={each}" for each in (constraints_file, *user_constraints)),
        *("--output-file", str(output_file), "--generate-hashes"),
        *("--no-header", "--no-annotate", "--no-strip-extras"),
    ]


def _binary() -> str:
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError) as error:
        raise BuildFailed("uv is not installed", "pip install 'hai-platform[env]'") from error


def _constrained_names(constraints_file: Path) -> frozenset[str]:
    """What the parents bring, which the resolver must keep."""
    lines = constraints_file.read_text(encoding="utf-8").splitlines()
    return frozenset(line.partition("==")[0] for line in lines)


def _hint(text: str, parent_packages: Collection[str]) -> str:
    """What to try. `kept` are packages of parents; none of them is concerned where the text names none."""
    if "was not found" in text:
        return "is the name right? --index and --find-links say where packages come from"
    if "No solution found" in text:
        locations = set(re.findall(r"[a-z0-9][a-z0-9._-]*[a-z0-9]", text.lower()))
        if not locations.isdisjoint(parent_packages):
            return "packages of parents are kept as they are; --force lets this environment have its own"
        return "ask for other versions, or say with --index or --find-links where these are"
    if "401 Unauthorized" in text or "403 Forbidden" in text:
        return "passwords in URLs are not stored: put it into ~/.netrc, or write ${VARIABLE} for it"
    if "No interpreter found" in text:
        return "`uv python list` shows the interpreters here; -p takes a path too"
    return ""
