"""A layer as one file beside it, for nodes that unpack it onto a disk of their own: many small files are slow over NFS.

The image says with its SHA-256 what is in it, and the same layer makes the same bytes: names are sorted, times and
owners left out, and modules are compiled for it anew (by hash, so that no time of a file counts). Agents unpack it
(hai_backend.environments.unpack); the form is told in docs/contributing/environments.md.
"""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

from haienv.errors import FULL, BuildFailed, Busy, NoRoom, Refused
from haienv.store.access import mine
from haienv.store.layout import IMAGE, IMAGE_RECORD, TELLING, Home, site_packages
from haienv.store.records import Image, Layer, Malformed, Parent, image_from, to_toml
from haienv.store.registry import Environment, layer_at
from haienv.store.transaction import building, committing, replace_text
from haienv.store.untrusted_io import Unreadable, read_text

_LEVEL = 6
_UNWRITTEN = re.compile(
    rb"OSError: (\[Errno (?:%d|%d)\].*|.*didn't write.*)" % FULL
)  # of compileall
_COMPILE = (
    "-P",
    "-s",
    "-B",
    "-m",
    "compileall",
    "-q",
    "-f",
    "--invalidation-mode",
    "unchecked-hash",
)


@dataclass(frozen=True, slots=True)
class Packed:
    """A layer of a chain. `image` is None where it belongs to another, who has not packed it."""

    called: str
    path: Path
    image: Image | None
    made: bool = False


def pack(home: Home, environment: Environment) -> list[Packed]:
    """Images of an environment's layer and of those below it that are the caller's; those that are there stay."""
    layer = mine(home, environment).usable
    if layer.editable:
        raise Refused(
            f"{environment} has projects in place: {', '.join(layer.editable)}",
            "what changes cannot be packed; install them as packages",
        )
    return [_packed(home, link) for link in _chain(environment, layer)]


def remove_image(home: Home, environment: Environment) -> list[Path]:
    """Take the image of an environment away again; those of its parents stay."""
    path = mine(home, environment).path
    there = [path / name for name in (IMAGE_RECORD, IMAGE) if (path / name).exists()]
    with committing(home):
        for each in there:  # what says that it is whole goes first
            each.unlink(missing_ok=True)
    return there


def image_of(layer: Path) -> Image | None:
    """What is said of a layer's image; None: it has none."""
    try:
        return image_from(read_text(layer / IMAGE_RECORD))
    except (Unreadable, Malformed):
        return None


def _chain(environment: Environment, layer: Layer) -> list[Parent]:
    own = Parent(environment.name, environment.owner, environment.layer_id, layer.lock_hash)
    return [own, *layer.parents]


def _packed(home: Home, link: Parent) -> Packed:
    path, called = home.layer(link.owner, link.layer), f"{link.name}[{link.owner}]"
    there = image_of(path)
    if link.owner != home.user:
        return Packed(called, path, there)
    if there is not None and _sha256(path / IMAGE) == there.sha256:
        return Packed(called, path, there)
    layer = layer_at(home, link.owner, link.layer)
    if layer is None:
        raise Busy(f"the layer of {called} was removed meanwhile", "run it again")
    return Packed(called, path, _make(home, path, layer), made=True)


def _make(home: Home, path: Path, layer: Layer) -> Image:
    with building(home) as work:
        modules = _compiled(path, layer, work / "modules")
        files, size = _write(path, modules, work / IMAGE)
        facts = Image(_sha256(work / IMAGE), (work / IMAGE).stat().st_size, size, files)
        (work / IMAGE).chmod(0o444)  # the layer's directory says who comes in
        replace_text(work / IMAGE_RECORD, to_toml(facts))
        with committing(home):  # what needs room is done
            (path / IMAGE_RECORD).unlink(missing_ok=True)
            (work / IMAGE).rename(path / IMAGE)
            (work / IMAGE_RECORD).rename(path / IMAGE_RECORD)
    return facts


def _compiled(path: Path, layer: Layer, place: Path) -> dict[str, Path]:
    """Bytecode made aside, by its name in the image. What does not compile is of another Python, and left out."""
    site = site_packages(path, layer.minor)
    command = [str(path / "bin" / "python"), *_COMPILE, "-s", str(site), str(site)]
    same = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    same |= {"PYTHONHASHSEED": "0", "PYTHONPYCACHEPREFIX": str(place)}  # -I would not hear of them
    told = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=same)
    if unwritten := _UNWRITTEN.search(told.stdout):
        raise NoRoom(f"{place} has no room for bytecode: {unwritten[1].decode()}")
    base = place.joinpath(*site.parts[1:])
    found = (each.relative_to(base) for each in base.rglob("*.pyc"))
    return {
        str(site.relative_to(path) / each.parent / "__pycache__" / each.name): base / each
        for each in found
    }


def _write(path: Path, modules: dict[str, Path], target: Path) -> tuple[int, int]:
    """How many files it holds, and their bytes."""
    from zstandard import ZstdCompressor

    found = {**dict(files_of(path)), **modules}
    size = 0
    with target.open("xb") as file:
        with (
            ZstdCompressor(level=_LEVEL, threads=-1).stream_writer(file, closefd=False) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
        ):
            for name in sorted(found):
                size += _add(archive, name, found[name])
        file.flush()
        os.fsync(file.fileno())
    return len(found), size


def files_of(path: Path) -> Iterator[tuple[str, Path]]:
    """Files and links of a layer by their names in it; not what tells of it, which differs with each place."""
    for folder, folders, names in os.walk(path):
        folders[:] = [each for each in folders if each != "__pycache__"]
        links = [each for each in folders if os.path.islink(os.path.join(folder, each))]
        for name in (*names, *links):
            each = Path(folder, name)
            inside = str(each.relative_to(path))
            if inside not in TELLING and not inside.startswith("."):
                yield inside, each


def _add(archive: tarfile.TarFile, name: str, path: Path) -> int:
    info = tarfile.TarInfo(name)
    if path.is_symlink():
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, os.readlink(path), 0o777
        archive.addfile(info)
        return 0
    if not path.is_file():
        raise BuildFailed(f"{path} is neither a file nor a link, so it cannot be packed")
    with path.open("rb") as file:  # those of CUDA have gigabytes
        facts = os.fstat(file.fileno())
        info.size, info.mode = facts.st_size, 0o555 if facts.st_mode & 0o100 else 0o444
        archive.addfile(info, file)
    return info.size


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""
