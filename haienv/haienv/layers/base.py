"""Determines the base of a new layer: an interpreter, and the packages of parents or of a Python outside haienv."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from haienv.errors import NotFound, Refused
from haienv.layers.installed import hash_packages, read_distributions, read_versions
from haienv.layers.plan import Distribution
from haienv.names import Reference
from haienv.store.layout import LAYERS_DIR, site_packages
from haienv.store.records import Layer, Parent, matches_minor, minor_version
from haienv.store.registry import Environment

_QUERY = """
import json, site, sys
print(json.dumps([sys._base_executable or sys.executable, "%d.%d.%d" % sys.version_info[:3], site.getsitepackages()]))
"""


@dataclass(frozen=True, slots=True)
class Base:
    """The interpreter and the inherited packages of a layer.

    `python` is the path or version for uv, and `required_minor` the minor version that this Python must have. `sites`
    are the directories of inherited packages; those in `external_sites` belong to a Python outside haienv.
    """

    python: str
    required_minor: str = ""
    parents: tuple[Parent, ...] = ()
    sites: tuple[Path, ...] = ()
    external_sites: tuple[str, ...] = ()

    @property
    def inherited_versions(self) -> dict[str, str]:
        """The versions of the inherited distributions by name."""
        return read_versions(self.sites)

    def list_provided(self, resolved: Mapping[str, str]) -> tuple[Distribution, ...]:
        """Return the inherited distributions. Read their requirements only if a resolved version would shadow one."""
        inherited = self.inherited_versions
        if any(resolved.get(name, version) != version for name, version in inherited.items()):
            return read_distributions(self.sites)
        return tuple(Distribution(name, version) for name, version in inherited.items())

    @property
    def parent_hash(self) -> str:
        """The lock hash of the nearest parent; empty if there is none."""
        return self.parents[0].lock_hash if self.parents else ""

    @property
    def sites_hash(self) -> str:
        """A hash of the packages of the extended Python; empty if there is none."""
        return hash_packages(map(Path, self.external_sites)) if self.external_sites else ""

    def parent_site_parts(self) -> list[tuple[str, ...]]:
        """Return the package directory of each parent, as path components below the root."""
        return [
            (p.owner, LAYERS_DIR, p.layer, "lib", f"python{self.required_minor}", "site-packages")
            for p in self.parents
        ]


def make_empty_base(python: str) -> Base:
    """Return the base of an environment that extends nothing."""
    return Base(python, python if _is_version(python) else "")


def make_environment_base(parent: Environment, python: str = "") -> Base:
    """Return the base of a layer that extends an environment and all its parents."""
    layer = parent.usable_layer
    nearest = Parent(parent.name, parent.owner, parent.layer_id, layer.lock_hash)
    if python and _is_version(python) and not matches_minor(python, layer.python):
        raise minor_mismatch(minor_version(python), layer.minor_version, str(parent))
    interpreter = layer.interpreter if _is_trusted(layer.interpreter) else layer.minor_version
    return Base(
        python if python and not _is_version(python) else interpreter,
        layer.minor_version,
        (nearest, *layer.parents),
        parent.sites,
        layer.sites,
    )


def make_layer_base(environment: Environment, layer: Layer) -> Base:
    """Return the base on which the current layer of an environment was built."""
    parent_sites = [
        site_packages(environment.root / p.owner / LAYERS_DIR / p.layer, layer.minor_version)
        for p in layer.parents
    ]
    sites = (*parent_sites, *map(Path, layer.sites))
    return Base(layer.interpreter, layer.minor_version, layer.parents, sites, layer.sites)


def find_running_python() -> str:
    """Return the path of the Python that runs haienv, outside of any virtual environment."""
    return str(getattr(sys, "_base_executable", sys.executable))


def find_running_minor() -> str:
    """Return the minor version of the Python that runs haienv."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def make_python_base(python: str, required: str = "") -> Base:
    """Return the base of a layer that extends a Python outside haienv: the system's, or a virtual environment."""
    program = shutil.which(python)
    if program is None:
        raise NotFound(f"no Python {python!r} on PATH", "-p takes a path or a version")
    result = subprocess.run([program, "-I", "-c", _QUERY], capture_output=True, text=True)
    if result.returncode:
        raise Refused(f"{program} cannot be run: {result.stderr.strip()[-200:]}")
    try:
        last_line = result.stdout.splitlines()[-1]  # start-up files may print other lines before
        base, version, sites = json.loads(last_line)
    except (ValueError, IndexError) as error:
        raise Refused(f"{program} does not behave like a Python interpreter") from error
    if _is_version(required) and not matches_minor(required, version):
        raise minor_mismatch(minor_version(required), minor_version(version), program)
    existing_sites = tuple(site for site in sites if os.path.isdir(site))
    return Base(base, minor_version(version), (), tuple(map(Path, existing_sites)), existing_sites)


def choose_default_parent(environ: Mapping[str, str]) -> Reference | str:
    """Return what `create` extends by default: the active environment, or else the Python that the shell finds."""
    if name := environ.get("HF_ENV_NAME"):
        return Reference(name, environ.get("HF_ENV_OWNER", ""))
    if prefix := environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX"):
        return os.path.join(prefix, "bin", "python")
    return "python3"


def minor_mismatch(required: str, actual: str, parent: str) -> Refused:
    """Return the error for a child with another minor version than its parent."""
    return Refused(
        f"Python {required} cannot extend {parent}, which has Python {actual}: compiled packages do not fit",
        f"leave out -p, or make a clean environment with --no_extend -p {required}",
    )


def _is_version(text: str) -> bool:
    """Return True for a version such as 3.11 or 3.11.9, False for a path."""
    return text.replace(".", "").isdigit()


def _is_trusted(interpreter: str) -> bool:
    """Return True if root or the caller owns an interpreter. Files of other users may name others, which never run."""
    try:
        return os.stat(interpreter).st_uid in (0, os.getuid())
    except OSError:
        return False
