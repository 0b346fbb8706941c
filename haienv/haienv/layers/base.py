"""The base of a new layer: an interpreter, and the packages of parents or of a Python that haienv did not build."""

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
from haienv.layers.installed import distributions, fingerprint, versions
from haienv.layers.plan import Distribution
from haienv.names import Reference
from haienv.store.layout import LAYERS_DIR, site_packages
from haienv.store.records import Layer, Parent, minor, minor_matches
from haienv.store.registry import Environment

_QUERY = """
import json, site, sys
print(json.dumps([sys._base_executable or sys.executable, "%d.%d.%d" % sys.version_info[:3], site.getsitepackages()]))
"""


@dataclass(frozen=True, slots=True)
class Base:
    """What a layer is built on.

    `python` is the path or version that uv gets; `required_minor` is the minor version that it must have. `sites` are
    the directories of inherited packages; those in `external_sites` belong to a Python outside haienv.
    """

    python: str
    required_minor: str = ""
    parents: tuple[Parent, ...] = ()
    sites: tuple[Path, ...] = ()
    external_sites: tuple[str, ...] = ()

    @property
    def versions(self) -> dict[str, str]:
        """Inherited distributions: name to version."""
        return versions(self.sites)

    def provided(self, resolved: Mapping[str, str]) -> tuple[Distribution, ...]:
        """Inherited distributions. Their requirements are read only where a resolved version would shadow one."""
        inherited = self.versions
        if any(resolved.get(name, version) != version for name, version in inherited.items()):
            return distributions(self.sites)
        return tuple(Distribution(name, version) for name, version in inherited.items())

    @property
    def parent_hash(self) -> str:
        """Lock hash of the nearest parent; empty if there is none."""
        return self.parents[0].lock_hash if self.parents else ""

    @property
    def sites_hash(self) -> str:
        """Fingerprint of the packages of the extended Python; empty if there is none."""
        return fingerprint(map(Path, self.external_sites)) if self.external_sites else ""

    def below(self) -> list[tuple[str, ...]]:
        """Directories of packages of the parents, as path components below the root."""
        return [
            (p.owner, LAYERS_DIR, p.layer, "lib", f"python{self.required_minor}", "site-packages")
            for p in self.parents
        ]


def empty_base(python: str) -> Base:
    """The base of an environment that extends nothing."""
    return Base(python, python if _is_minor(python) else "")


def environment_base(parent: Environment, python: str = "") -> Base:
    """The base of a layer that extends an environment and all its parents."""
    layer = parent.usable
    nearest = Parent(parent.name, parent.owner, parent.layer_id, layer.lock_hash)
    if python and _is_minor(python) and not minor_matches(python, layer.python):
        raise minor_mismatch(minor(python), layer.minor, str(parent))
    chosen = layer.interpreter if _is_trusted(layer.interpreter) else layer.minor
    return Base(
        python if python and not _is_minor(python) else chosen,
        layer.minor,
        (nearest, *layer.parents),
        parent.sites,
        layer.sites,
    )


def layer_base(environment: Environment, layer: Layer) -> Base:
    """The current base of an environment, to build its layer again."""
    below = [
        site_packages(environment.root / p.owner / LAYERS_DIR / p.layer, layer.minor)
        for p in layer.parents
    ]
    sites = (*below, *map(Path, layer.sites))
    return Base(layer.interpreter, layer.minor, layer.parents, sites, layer.sites)


def running_python() -> str:
    """The path of the Python that runs haienv, outside of any virtual environment."""
    return str(getattr(sys, "_base_executable", sys.executable))


def running_minor() -> str:
    """The minor version of the Python that runs haienv."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def python_base(python: str, required: str = "") -> Base:
    """The base of a layer that extends a Python outside haienv, such as the system's or a virtual environment."""
    program = shutil.which(python)
    if program is None:
        raise NotFound(f"no Python {python!r} on PATH", "-p takes a path or a version")
    result = subprocess.run([program, "-I", "-c", _QUERY], capture_output=True, text=True)
    if result.returncode:
        raise Refused(f"{program} cannot be run: {result.stderr.strip()[-200:]}")
    try:
        base, version, sites = json.loads(
            result.stdout.splitlines()[-1]
        )  # start-up files may print
    except (ValueError, IndexError) as error:
        raise Refused(f"{program} does not behave like a Python interpreter") from error
    if _is_minor(required) and not minor_matches(required, version):
        raise minor_mismatch(minor(required), minor(version), program)
    existing = tuple(site for site in sites if os.path.isdir(site))
    return Base(base, minor(version), (), tuple(map(Path, existing)), existing)


def default_parent(environ: Mapping[str, str]) -> Reference | str:
    """What `create` extends by default: the active environment, or the Python that the shell finds."""
    if name := environ.get("HF_ENV_NAME"):
        return Reference(name, environ.get("HF_ENV_OWNER", ""))
    if prefix := environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX"):
        return os.path.join(prefix, "bin", "python")
    return "python3"


def minor_mismatch(required: str, parents: str, parent: str) -> Refused:
    """The error for a child with another minor version than its parent."""
    return Refused(
        f"Python {required} cannot extend {parent}, which has Python {parents}: compiled packages do not fit",
        f"leave out -p, or make a clean environment with --no_extend -p {required}",
    )


def _is_minor(text: str) -> bool:
    return text.replace(".", "").isdigit()  # 3.11 or 3.11.9


def _is_trusted(interpreter: str) -> bool:
    """True for interpreters of root or the caller: others, named in another user's file, are never run."""
    try:
        return os.stat(interpreter).st_uid in (0, os.getuid())
    except OSError:
        return False
