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
from haienv.store.layout import CACHE, Home

MINIMAL_ENV_CLEARED = ("VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH", "CONDA_PREFIX")
_WRITES = ("venv", "pip")  # commands that take room; others make some
_CONSTRAINTS = "UV_CONSTRAINT"
"""They count when versions are chosen; those of a lock are chosen, and uv would want hashes of these too."""


@dataclass(frozen=True, slots=True)
class Index:
    """Where packages come from, when the user says so for one command."""

    url: str = ""
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    offline: bool = False

    def arguments(self, *places: Path) -> list[str]:
        """As uv takes them; `places` are more to look for wheels."""
        given = [f"--default-index={self.url}"] if self.url else []
        named = [*map(str, places), *self.find_links]
        if named:  # the option would take the place of the variable
            named += filter(None, os.environ.get("UV_FIND_LINKS", "").split(","))
        given += [f"--find-links={place}" for place in named]
        given += ["--no-index"] if self.no_index else []
        return [*given, *(["--offline"] if self.offline else [])]


@dataclass(frozen=True, slots=True)
class Uv:
    """The installer. `index` counts for everything that it does."""

    home: Home
    index: Index = Index()

    def make(self, target: Path, python: str) -> None:
        """An empty, relocatable virtual environment."""
        self._run("venv", "--relocatable", "--no-project", "--python", python, str(target))

    def resolve(
        self,
        python: Path,
        wanted: Path,
        constraints: Path,
        answer: Path,
        places: Sequence[Path] = (),
        upgrade: bool = False,
    ) -> str:
        """Pins with hashes for what is wanted; what `answer` holds before is preferred."""
        arguments = [*_compile(wanted, constraints, answer), "--python", str(python)]
        arguments += ["--upgrade"] if upgrade else []
        self._run(*arguments, *self.index.arguments(*places), kept=_names(constraints))
        return answer.read_text(encoding="utf-8")

    def resolve_for(self, version: str, wanted: Path, constraints: Path, answer: Path) -> str:
        """The same for a Python of a cluster: a version, Linux."""
        arguments = [*_compile(wanted, constraints, answer), "--python-version", version]
        arguments += ["--python-platform", "linux", *self.index.arguments()]
        self._run(*arguments, kept=_names(constraints))
        return answer.read_text(encoding="utf-8")

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

    def _run(self, *arguments: str, kept: Collection[str] = ()) -> None:
        if arguments[0] in _WRITES and self.home.own.is_dir():
            DiskReserve(self.home.own).require()
        seen = sys.stderr.isatty()
        command = [_binary(), *arguments, *([] if seen else ["--quiet"])]
        told = None if seen else subprocess.PIPE
        done = run(command, self._environ(), subprocess.PIPE, told)
        if done.returncode:
            what = (done.stderr or "see above").strip().removeprefix("error: ")
            raise installer_failed(f"uv {' '.join(arguments[:2])}: {what}", _hint(what, kept))

    def _environ(self) -> dict[str, str]:
        cleared = (*MINIMAL_ENV_CLEARED, _CONSTRAINTS)
        kept = {k: v for k, v in os.environ.items() if k not in cleared}
        kept.setdefault("UV_CACHE_DIR", str(self.home.own / CACHE))
        site = self.home.root / "uv.toml"
        if site.is_file():
            kept.setdefault("UV_CONFIG_FILE", str(site))
        return kept


def _compile(wanted: Path, constraints: Path, answer: Path) -> list[str]:
    also = os.environ.get(_CONSTRAINTS, "").split()
    return [
        *("pip", "compile", str(wanted)),
        *(f"--constraints={each}" for each in (constraints, *also)),
        *("--output-file", str(answer), "--generate-hashes"),
        *("--no-header", "--no-annotate", "--no-strip-extras"),
    ]


def _binary() -> str:
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError) as error:
        raise BuildFailed("uv is not installed", "pip install 'hai-platform[env]'") from error


def _names(constraints: Path) -> frozenset[str]:
    """What the parents bring, which the resolver must keep."""
    lines = constraints.read_text(encoding="utf-8").splitlines()
    return frozenset(line.partition("==")[0] for line in lines)


def _hint(text: str, kept: Collection[str]) -> str:
    """What to try. `kept` are packages of parents; none of them is concerned where the text names none."""
    if "was not found" in text:
        return "is the name right? --index and --find-links say where packages come from"
    if "No solution found" in text:
        named = set(re.findall(r"[a-z0-9][a-z0-9._-]*[a-z0-9]", text.lower()))
        if not named.isdisjoint(kept):
            return "packages of parents are kept as they are; --force lets this environment have its own"
        return "ask for other versions, or say with --index or --find-links where these are"
    if "401 Unauthorized" in text or "403 Forbidden" in text:
        return "passwords in URLs are not stored: put it into ~/.netrc, or write ${VARIABLE} for it"
    if "No interpreter found" in text:
        return "`uv python list` shows the interpreters here; -p takes a path too"
    return ""
