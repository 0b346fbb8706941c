"""Builds layers: resolves versions, plans, installs into a temporary directory, and publishes it under its hash."""

from __future__ import annotations

import json
import os
import stat
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from hai.redaction import without_credentials
from haienv.backends.uv import Uv
from haienv.digests import hash_text
from haienv.errors import BuildFailed, Refused, UsageError
from haienv.layers.base import Base, minor_mismatch
from haienv.layers.installed import list_dist_infos
from haienv.layers.integrity import compare_layer
from haienv.layers.machine import find_cuda_version, read_libc_version
from haienv.layers.plan import Step, find_breaking_shadows, names_in_layer, plan_steps
from haienv.layers.postinstall import sanitize_installed
from haienv.layers.pth_links import (
    copy_layer_programs,
    link_parents,
    write_console_scripts,
    write_pip_shim,
)
from haienv.layers.resolve import Resolution, resolve
from haienv.requirements.requirement_set import RequirementSet, project_directory, project_url
from haienv.store.layout import LAYER_FILE, LOCK_FILE, Home, site_packages
from haienv.store.records import (
    MODES,
    Layer,
    MalformedRecord,
    matches_minor,
    minor_version,
    parse_layer,
    to_toml,
    utc_now,
)
from haienv.store.requirements_lock import Lock, Pin
from haienv.store.transaction import publish, replace_text
from haienv.store.untrusted_io import LOCK_LIMIT_BYTES, RECORD_LIMIT_BYTES, read_text_or_empty

PlanCallback = Callable[[Sequence[Step]], None]
_PROJECT_FILES = ("pyproject.toml", "setup.cfg", "setup.py")
_RESERVED_BYTES = 100  # for the size and the package count, which a record gets after the build


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """The requested contents of a layer.

    `exact` pins are installed as they are. If `exact` is None, versions are resolved from `requirements`, and
    `previous` pins are preferred. `populate(layer, site_packages)` replaces the installer.
    """

    requirements: tuple[str, ...] = ()
    editable: tuple[str, ...] = ()
    previous: tuple[Pin, ...] = ()
    exact: tuple[Pin, ...] | None = None
    upgrade: bool = False
    force: bool = False
    compile_bytecode: bool = False
    verify: bool = False  # compare the files with their RECORD before the layer is published
    dry_run: bool = False
    base_changed: bool = False  # another parent or Python: the plan lists every package as new
    recheck_shadows: bool = False  # also refuse shadows that the previous layer had
    populate: Callable[[Path, Path], None] | None = None


@dataclass(frozen=True, slots=True)
class BuildResult:
    """A published layer, and the plan that led to it."""

    layer_id: str
    layer: Layer
    steps: tuple[Step, ...]


def exact_pins(requested: RequirementSet, base: Base) -> tuple[Pin, ...] | None:
    """Return the pins of the requested lock; None if there is none, so versions must be resolved.

    Raise Refused if the lock was made for another base.
    """
    if requested.lock is None:
        return None
    if requested.lock.parent != base.parent_hash or requested.lock.sites != base.sites_hash:
        raise Refused(
            "the lock was made for another parent",
            "extend the environment whose lock hash is in its first lines, or name requirements instead",
        )
    return requested.lock.pins


def build(
    home: Home, uv: Uv, base: Base, request: BuildRequest, work: Path, on_plan: PlanCallback
) -> BuildResult | None:
    """Build and publish a layer, or reuse a published one with the same contents. Return None after a dry run."""
    target = work / "layer"
    uv.create_venv(target, base.python)
    for script in {*(target / "bin").glob("activate*"), *(target / "bin").glob("*.bat")}:
        script.unlink()  # haienv has its own activation
    python_version, interpreter = _read_created_python(target)
    base = _with_actual_minor(base, python_version)
    resolution = _resolve_request(uv, base, request, work, target)
    redacted = Resolution(tuple(pin.redacted for pin in resolution.pins))
    previous = {} if request.base_changed else {pin.name: pin.version for pin in request.previous}
    provided = base.list_provided(redacted.versions)
    steps = plan_steps(previous, redacted.versions, provided)
    checked_steps = (
        plan_steps({}, redacted.versions, provided) if request.recheck_shadows else steps
    )
    _refuse_breaking_shadows(checked_steps, request.force)
    names = names_in_layer(steps)
    pins = tuple(pin for pin in redacted.pins if pin.name in names)
    _require_hashes(pins)
    lock = Lock(minor_version(python_version), pins, base.parent_hash, base.sites_hash)
    exact = work / "exact.txt"  # here, URLs keep the credentials that uv needs
    exact.write_text("".join(f"{p.line}\n" for p in resolution.pins if p.name in names), "utf-8")
    layer = _layer_record(lock, python_version, interpreter, base, request)
    _require_readable(layer)
    on_plan(steps)
    if request.dry_run:
        return None
    layer_id = _layer_id(layer, base)
    layer_dir = home.layer(home.user, layer_id)
    if not (layer_dir / LAYER_FILE).exists():
        publish(_populate_layer(home, uv, target, base, lock, layer, request, exact), layer_dir)
    else:
        _reuse_layer(layer_dir, lock, layer, request)
    return BuildResult(layer_id, layer, steps)


def _resolve_request(
    uv: Uv, base: Base, request: BuildRequest, work: Path, target: Path
) -> Resolution:
    if request.exact is not None:
        return Resolution(request.exact)
    return resolve(uv, base, request.requirements, request.editable, request.previous, work, target / "bin" / "python",
                   upgrade=request.upgrade, force=request.force)  # fmt: skip


def _read_created_python(target: Path) -> tuple[str, str]:
    """Return version and path of the Python of a new virtual environment."""
    lines = (target / "pyvenv.cfg").read_text().splitlines()
    settings = dict(line.split(" = ", 1) for line in lines if " = " in line)
    return settings["version_info"], os.readlink(target / "bin" / "python")


def _with_actual_minor(base: Base, python: str) -> Base:
    """Return the base with the minor version of the Python that uv has found. Raise an error if that does not fit."""
    if base.required_minor and not matches_minor(base.required_minor, python):
        if base.parents or base.external_sites:
            parent = base.parents[0].name if base.parents else "this Python"
            raise minor_mismatch(minor_version(python), base.required_minor, parent)
        raise BuildFailed(
            f"Python {base.required_minor} was requested, but Python {python} was found",
            "-p takes a version or a path",
        )
    return replace(base, required_minor=minor_version(python))


def _refuse_breaking_shadows(steps: Sequence[Step], force: bool) -> None:
    """Raise Refused if a shadow may break compiled packages of a parent, unless `force` is set."""
    shadows = find_breaking_shadows(steps)
    if shadows and not force:
        message = "; ".join(
            f"{s.name} {s.version} would shadow {s.before}, which {', '.join(s.needed_by[:3])} "
            f"{'was' if len(s.needed_by) == 1 else 'were'} built with"
            for s in shadows
        )
        raise Refused(
            message,
            "request versions that fit the parent, or add --force if you know that it works",
        )


def _require_hashes(pins: Sequence[Pin]) -> None:
    """Refuse packages from a repository or a directory: they have no hash, so a lock cannot identify them."""
    if unhashed := [pin for pin in pins if "--hash=" not in pin.line]:
        raise Refused(
            f"{unhashed[0].line} has no hash, so a lock cannot identify it",
            "build a wheel and request 'NAME @ file:///….whl', or install a clone in place: -e DIR",
        )


def _layer_record(
    lock: Lock, python: str, interpreter: str, base: Base, request: BuildRequest
) -> Layer:
    """Return the record of a new layer, without size and number of packages."""
    return Layer(
        lock_hash=lock.hash,
        python=python,
        interpreter=interpreter,
        platform=sysconfig.get_platform(),
        libc=read_libc_version(),
        cuda=find_cuda_version(),
        backend="uv" if request.populate is None else "archive",
        wanted=tuple(map(without_credentials, request.requirements)),
        editable=request.editable,
        sites=base.external_sites,
        created=utc_now(),
        parents=base.parents,
    )


def _require_readable(layer: Layer) -> None:
    """Check before the build that haienv and the server will be able to read the layer record."""
    text = to_toml(layer)
    try:
        parse_layer(text)
    except MalformedRecord as error:
        raise UsageError(str(error)) from error
    if len(text.encode()) > RECORD_LIMIT_BYTES - _RESERVED_BYTES:
        raise UsageError(
            f"requirements are too long: a layer record has at most {RECORD_LIMIT_BYTES >> 10} KiB"
        )


def _layer_id(layer: Layer, base: Base) -> str:
    """Return a hash of everything in which layers differ, so that equal requests share one layer."""
    # The names of parents count, because activation reads their metadata.
    parents = [(p.owner, p.name, p.layer) for p in base.parents]
    facts = [layer.backend, layer.lock_hash, layer.python, layer.interpreter, layer.wanted, layer.editable,
             layer.sites, parents, *_project_hashes(layer.editable)]  # fmt: skip
    return hash_text(json.dumps(facts))[:24]


def _project_hashes(editable: Sequence[str]) -> list[str]:
    """Hash the build files of projects in place: a change of one may add programs or change the version."""
    directories = map(Path, map(project_directory, editable))
    files = [directory / name for directory in directories for name in _PROJECT_FILES]
    return [sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in files]


def _populate_layer(
    home: Home,
    uv: Uv,
    target: Path,
    base: Base,
    lock: Lock,
    layer: Layer,
    request: BuildRequest,
    exact: Path,
) -> Path:
    """Install the packages into a new layer and seal the layer. Return its directory."""
    python, programs = target / "bin" / "python", target / "bin"
    site = site_packages(target, layer.minor_version)
    (target / LOCK_FILE).write_text(lock.text)
    if request.populate is not None:
        request.populate(target, site)
    elif lock.pins:
        uv.install(python, exact, request.compile_bytecode)
    if request.verify or request.populate is not None:
        _require_intact(target, site, layer)
    if layer.editable:
        uv.install_editable(python, [project_url(each) for each in layer.editable])
    sanitize_installed(site)
    link_parents(site, base.parent_site_parts(), base.external_sites)
    if base.parents:
        copy_layer_programs(
            home.layer(base.parents[0].owner, base.parents[0].layer) / "bin", programs
        )
    elif base.external_sites:
        write_console_scripts(map(Path, base.external_sites), programs)
    write_pip_shim(programs)
    return _seal(target, site, layer)


def _reuse_layer(layer_dir: Path, lock: Lock, layer: Layer, request: BuildRequest) -> None:
    """Reuse a published layer. If its lock is damaged, write the lock again."""
    if read_text_or_empty(layer_dir / LOCK_FILE, LOCK_LIMIT_BYTES) != lock.text:
        replace_text(layer_dir / LOCK_FILE, lock.text)
    if request.verify:
        _require_intact(layer_dir, site_packages(layer_dir, layer.minor_version), layer)


def _require_intact(target: Path, site: Path, layer: Layer) -> None:
    if differences := compare_layer(target, site, layer.lock_hash):
        raise Refused(
            f"{len(differences)} files differ from their RECORD; the first is {differences[0].path}"
        )


def _seal(target: Path, site: Path, layer: Layer) -> Path:
    """Write the layer record, and make all files read-only: the cache and other layers have hard links to them."""
    (site / "__pycache__").mkdir(exist_ok=True)
    size = make_read_only(target)
    packages = sum(1 for _ in list_dist_infos(site))
    (target / LAYER_FILE).write_text(to_toml(replace(layer, size_bytes=size, packages=packages)))
    (target / LAYER_FILE).chmod(0o444)
    for directory in (site, target / "bin"):
        directory.chmod(0o555)
    target.chmod(MODES["private"])
    return target


def make_read_only(target: Path) -> int:
    """Make files readable by all and writable by nobody. Return the sum of their sizes in bytes.

    The mode of the layer's directory limits access.
    """
    size = 0
    for folder, _, names in os.walk(target):
        os.chmod(folder, 0o755)
        for name in names:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            size += status.st_size
            mode = 0o555 if status.st_mode & 0o100 else 0o444
            if stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) != mode:
                os.chmod(path, mode)
    return size
