"""What a new layer stands on: an interpreter, and the packages of a parent or of a Python outside haienv."""

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
    """`python` is what uv is asked for: a path or a version. `wanted_minor` is what it must turn out to be."""

    python: str
    required_minor: str = ""
    parents: tuple[Parent, ...] = ()
    sites: tuple[Path, ...] = ()
    external_sites: tuple[str, ...] = ()

    @property
    def versions(self) -> dict[str, str]:
        """What is provided: name to version."""
        return versions(self.sites)

    def provided(self, wanted: Mapping[str, str]) -> tuple[Distribution, ...]:
        """What is provided; what that needs is read only where something wanted would hide a part of it."""
        existing = self.versions
        if any(wanted.get(name, version) != version for name, version in existing.items()):
            return distributions(self.sites)
        return tuple(Distribution(name, version) for name, version in existing.items())

    @property
    def parent_hash(self) -> str:
        """Lock hash of the nearest parent; empty: none."""
        return self.parents[0].lock_hash if self.parents else ""

    @property
    def sites_hash(self) -> str:
        """Of what the extended Python has; empty: it extends none."""
        return fingerprint(map(Path, self.external_sites)) if self.external_sites else ""

    def below(self) -> list[tuple[str, ...]]:
        """Directories of packages of the parents, in parts from the root."""
        return [
            (p.owner, LAYERS_DIR, p.layer, "lib", f"python{self.required_minor}", "site-packages")
            for p in self.parents
        ]


def empty_base(python: str) -> Base:
    """A clean environment."""
    return Base(python, python if _is_minor(python) else "")


def environment_base(parent: Environment, python: str = "") -> Base:
    """On an environment of haienv, and on all that it stands on."""
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
    """What an environment stands on now, so that its layer can be made again."""
    below = [
        site_packages(environment.root / p.owner / LAYERS_DIR / p.layer, layer.minor)
        for p in layer.parents
    ]
    sites = (*below, *map(Path, layer.sites))
    return Base(layer.interpreter, layer.minor, layer.parents, sites, layer.sites)


def running_python() -> str:
    """The Python that haienv itself runs on, outside of any virtual environment."""
    return str(getattr(sys, "_base_executable", sys.executable))


def running_minor() -> str:
    """Its minor version."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def python_base(python: str, wanted: str = "") -> Base:
    """On a Python outside haienv, such as a site's own or another virtual environment."""
    path_of_python = shutil.which(python)
    if path_of_python is None:
        raise NotFound(f"no Python {python!r} on PATH", "-p takes a path or a version")
    result = subprocess.run([path_of_python, "-I", "-c", _QUERY], capture_output=True, text=True)
    if result.returncode:
        raise Refused(f"{path_of_python} cannot be run: {result.stderr.strip()[-200:]}")
    try:
        base, version, sites = json.loads(
            result.stdout.splitlines()[-1]
        )  # start-up files may print
    except (ValueError, IndexError) as error:
        raise Refused(f"{path_of_python} does not answer as a Python does") from error
    if _is_minor(wanted) and not minor_matches(wanted, version):
        raise minor_mismatch(minor(wanted), minor(version), path_of_python)
    existing = tuple(site for site in sites if os.path.isdir(site))
    return Base(base, minor(version), (), tuple(map(Path, existing)), existing)


def default_parent(environ: Mapping[str, str]) -> Reference | str:
    """What `create` extends by default: the active environment, or the Python that the shell finds."""
    if name := environ.get("HF_ENV_NAME"):
        return Reference(name, environ.get("HF_ENV_OWNER", ""))
    if prefix := environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX"):
        return os.path.join(prefix, "bin", "python")
    return "python3"


def minor_mismatch(wanted: str, parents: str, parent: str) -> Refused:
    """The error for a child of another minor version."""
    return Refused(
        f"Python {wanted} cannot extend {parent}, which has Python {parents}: compiled packages do not fit",
        f"leave out -p, or make a clean environment with --no_extend -p {wanted}",
    )


def _is_minor(text: str) -> bool:
    return text.replace(".", "").isdigit()  # 3.11 or 3.11.9


def _is_trusted(interpreter: str) -> bool:
    """An interpreter that another user's file names is run only if the system's or the caller's own."""
    try:
        return os.stat(interpreter).st_uid in (0, os.getuid())
    except OSError:
        return False
