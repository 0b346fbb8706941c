"""Makes layers: resolve, plan, install aside, close, and publish under a name that says what is inside."""

from __future__ import annotations

import json
import os
import stat
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from hai.redaction import without_credentials
from haienv.backends.uv import Uv
from haienv.errors import BuildFailed, Refused, UsageError
from haienv.layers import base as ground
from haienv.layers.base import Base
from haienv.layers.installed import infos
from haienv.layers.integrity import differences_of
from haienv.layers.machine import cuda_driver, libc
from haienv.layers.plan import Step, breaking, own, plan
from haienv.layers.postinstall import finish
from haienv.layers.pth_links import pip_shim, programs_of_layer, programs_of_sites, see
from haienv.layers.resolve import Resolution, resolve
from haienv.requirements.requirement_set import RequirementSet, directory_of, url_of
from haienv.store.layout import LOCK_TEXT, RECORD, Home, site_packages
from haienv.store.lock import Lock, Pin
from haienv.store.records import MODES, Layer, Malformed, fits, layer_from, minor, to_toml
from haienv.store.transaction import publish, replace_text
from haienv.store.untrusted_io import LIMIT, LOCK_LIMIT, Unreadable, read_text

Tell = Callable[[Sequence[Step]], None]
_PROJECT = ("pyproject.toml", "setup.cfg", "setup.py")
_SIZES = 100  # bytes of what is known of a layer once it is built


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """What a layer should be. `exact` pins are taken as they are, nothing is resolved; `fill` puts files into
    the layer and its site-packages instead of the installer."""

    wanted: tuple[str, ...] = ()
    editable: tuple[str, ...] = ()
    before: tuple[Pin, ...] = ()
    exact: tuple[Pin, ...] | None = None
    upgrade: bool = False
    force: bool = False
    compiled: bool = False
    verify: bool = False  # compare the files with their records before the layer counts
    dry_run: bool = False
    new_ground: bool = False  # the parent or the Python is another, so all is installed
    judged_anew: bool = False  # what hides packages of the parent, although it did so before
    fill: Callable[[Path, Path], None] | None = None


@dataclass(frozen=True, slots=True)
class Built:
    """A layer in its place, and how it came to be."""

    layer_id: str
    layer: Layer
    steps: tuple[Step, ...]


def exact_pins(asked: RequirementSet, base: Base) -> tuple[Pin, ...] | None:
    """The pins of a lock, if it was made for this base; None: there is no lock, so versions are resolved."""
    if asked.lock is None:
        return None
    if asked.lock.parent != base.parent_hash or asked.lock.sites != base.sites_hash:
        raise Refused(
            "the lock was made for another parent than this",
            "extend the environment whose lock hash stands on its top, or give requirements",
        )
    return asked.lock.pins


def build(
    home: Home, uv: Uv, base: Base, wish: BuildRequest, work: Path, tell: Tell
) -> Built | None:
    """A layer as wished; one that is there already is taken. None: this was a dry run."""
    target = work / "layer"
    uv.make(target, base.python)
    for left in {*(target / "bin").glob("activate*"), *(target / "bin").glob("*.bat")}:
        left.unlink()  # uv's own: one enters otherwise
    python, interpreter = _made(target)
    base = _checked(base, python)
    chosen = _resolution(uv, base, wish, work, target)  # URLs with what the installer needs
    found = Resolution(tuple(pin.recorded for pin in chosen.pins))
    before = {} if wish.new_ground else {pin.name: pin.version for pin in wish.before}
    below = base.dists(found.versions)
    steps = plan(before, found.versions, below)
    judged = plan({}, found.versions, below) if wish.judged_anew else steps
    _refuse_breaking(judged, wish.force)
    mine = own(steps)
    pins = tuple(pin for pin in found.pins if pin.name in mine)
    _require_hashes(pins)
    lock = Lock(minor(python), pins, base.parent_hash, base.sites_hash)
    exact = work / "exact.txt"
    exact.write_text("".join(f"{p.line}\n" for p in chosen.pins if p.name in mine), "utf-8")
    layer = _record(lock, python, interpreter, base, wish)
    _require_readable(layer)
    tell(steps)
    if wish.dry_run:
        return None
    layer_id = _identity(layer, base)
    place = home.layer(home.user, layer_id)
    if not (place / RECORD).exists():
        publish(_fill(home, uv, target, base, lock, layer, wish, exact), place)
    else:
        _take(place, lock, layer, wish)
    return Built(layer_id, layer, steps)


def _resolution(uv: Uv, base: Base, wish: BuildRequest, work: Path, target: Path) -> Resolution:
    if wish.exact is not None:
        return Resolution(wish.exact)
    return resolve(uv, base, wish.wanted, wish.editable, wish.before, work, target / "bin" / "python",
                   upgrade=wish.upgrade, force=wish.force)  # fmt: skip


def _made(target: Path) -> tuple[str, str]:
    """Version and path of the Python that a new skeleton has."""
    lines = (target / "pyvenv.cfg").read_text().splitlines()
    facts = dict(line.split(" = ", 1) for line in lines if " = " in line)
    return facts["version_info"], os.readlink(target / "bin" / "python")


def _checked(base: Base, python: str) -> Base:
    if base.wanted_minor and not fits(base.wanted_minor, python):
        if base.parents or base.outside:
            parent = base.parents[0].name if base.parents else "this Python"
            raise ground.other_minor(minor(python), base.wanted_minor, parent)
        raise BuildFailed(
            f"Python {base.wanted_minor} was wanted, {python} was found",
            "-p takes a version or a path",
        )
    return replace(base, wanted_minor=minor(python))


def _refuse_breaking(steps: Sequence[Step], force: bool) -> None:
    broken = breaking(steps)
    if broken and not force:
        lines = "; ".join(
            f"{s.name} {s.version} would hide {s.before}, which {', '.join(s.needed_by[:3])} "
            f"{'was' if len(s.needed_by) == 1 else 'were'} built with"
            for s in broken
        )
        raise Refused(lines, "ask for what fits the parent, or --force if you know that it works")


def _require_hashes(pins: Sequence[Pin]) -> None:
    """What comes from a repository or a directory has none, and a lock could not tell what it was."""
    if bare := [pin for pin in pins if "--hash=" not in pin.line]:
        raise Refused(
            f"{bare[0].line} has no hash, so no lock can tell what it is",
            "of a repository make a wheel and ask for 'NAME @ file:///….whl', or install a clone in place: -e DIR",
        )


def _record(lock: Lock, python: str, interpreter: str, base: Base, wish: BuildRequest) -> Layer:
    return Layer(
        lock_hash=lock.hash,
        python=python,
        interpreter=interpreter,
        platform=sysconfig.get_platform(),
        libc=libc(),
        cuda=cuda_driver(),
        backend="uv" if wish.fill is None else "archive",
        wanted=tuple(map(without_credentials, wish.wanted)),
        editable=wish.editable,
        sites=base.outside,
        created=datetime.now(UTC).replace(microsecond=0),
        parents=base.parents,
    )


def _require_readable(layer: Layer) -> None:
    """What is written can be read again, by the server too: before it is built."""
    text = to_toml(layer)
    try:
        layer_from(text)
    except Malformed as error:
        raise UsageError(str(error)) from error
    if len(text.encode()) > LIMIT - _SIZES:
        raise UsageError(f"what is asked for has {LIMIT >> 10} KiB at most")


def _identity(layer: Layer, base: Base) -> str:
    """The same contents on the same ground have the same name."""
    parents = [(p.owner, p.name, p.layer) for p in base.parents]  # names: their labels count
    facts = [layer.backend, layer.lock_hash, layer.python, layer.interpreter, layer.wanted, layer.editable,
             layer.sites, parents, *_projects(layer.editable)]  # fmt: skip
    return sha256(json.dumps(facts).encode()).hexdigest()[:24]


def _projects(editable: Sequence[str]) -> list[str]:
    """Hashes of what says how projects in place are installed: they may get other programs, or another version."""
    folders = map(Path, map(directory_of, editable))
    files = [folder / name for folder in folders for name in _PROJECT]
    return [sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in files]


def _fill(
    home: Home,
    uv: Uv,
    target: Path,
    base: Base,
    lock: Lock,
    layer: Layer,
    wish: BuildRequest,
    exact: Path,
) -> Path:
    python, bin_ = target / "bin" / "python", target / "bin"
    site = site_packages(target, layer.minor)
    (target / LOCK_TEXT).write_text(lock.text)
    if wish.fill is not None:
        wish.fill(target, site)
    elif lock.pins:
        uv.install(python, exact, wish.compiled)
    if wish.verify or wish.fill is not None:
        _require_intact(target, site, layer)
    if layer.editable:
        uv.install_editable(python, [url_of(each) for each in layer.editable])
    finish(site)
    see(site, base.below(), base.outside)
    if base.parents:
        programs_of_layer(home.layer(base.parents[0].owner, base.parents[0].layer) / "bin", bin_)
    elif base.outside:
        programs_of_sites(map(Path, base.outside), bin_)
    pip_shim(bin_)
    return _closed(target, site, layer)


def _take(place: Path, lock: Lock, layer: Layer, wish: BuildRequest) -> None:
    """A layer that is there; its lock, which may have been damaged since, is mended."""
    if _text(place / LOCK_TEXT) != lock.text:
        replace_text(place / LOCK_TEXT, lock.text)
    if wish.verify:
        _require_intact(place, site_packages(place, layer.minor), layer)


def _text(path: Path) -> str:
    try:
        return read_text(path, LOCK_LIMIT)
    except Unreadable:
        return ""


def _require_intact(target: Path, site: Path, layer: Layer) -> None:
    if wrong := differences_of(target, site, layer.lock_hash):
        raise Refused(
            f"{len(wrong)} files are not what their records say, the first is {wrong[0].path}"
        )


def _closed(target: Path, site: Path, layer: Layer) -> Path:
    """Read-only: files are shared with the cache and with other layers by hard links."""
    (site / "__pycache__").mkdir(exist_ok=True)
    size = close_files(target)
    packages = sum(1 for _ in infos(site))
    (target / RECORD).write_text(to_toml(replace(layer, size_bytes=size, packages=packages)))
    (target / RECORD).chmod(0o444)
    for directory in (site, target / "bin"):
        directory.chmod(0o555)
    target.chmod(MODES["private"])
    return target


def close_files(target: Path) -> int:
    """Let nobody write and everybody read (the directory on top says who comes in); the sum of bytes."""
    size = 0
    for folder, _, names in os.walk(target):
        os.chmod(folder, 0o755)
        for name in names:
            path = os.path.join(folder, name)
            facts = os.lstat(path)
            size += facts.st_size
            wanted = 0o555 if facts.st_mode & 0o100 else 0o444
            if stat.S_ISREG(facts.st_mode) and stat.S_IMODE(facts.st_mode) != wanted:
                os.chmod(path, wanted)
    return size
