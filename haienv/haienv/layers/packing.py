"""Packs a layer into one image file, which nodes unpack onto local disks: many small files are slow over NFS.

Images are reproducible and identified by their SHA-256: names are sorted, times and owners omitted, and modules are
compiled again with hash-based invalidation, so that no modification time counts. Agents unpack them
(hai_backend.environments.unpack); docs/contributing/environments.md describes the format.
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

from haienv.errors import DISK_FULL_ERRNOS, BuildFailed, Busy, DiskFull, Refused
from haienv.store.access import require_owner
from haienv.store.layout import (
    DESCRIPTION_FILES,
    IMAGE_FILE,
    IMAGE_METADATA_FILE,
    Home,
    site_packages,
)
from haienv.store.records import Image, Layer, MalformedRecord, Parent, parse_image, to_toml
from haienv.store.registry import Environment, read_layer
from haienv.store.transaction import build_directory, committing, replace_text
from haienv.store.untrusted_io import Unreadable, read_text

_COMPRESSION_LEVEL = 6
_WRITE_FAILED = re.compile(
    rb"OSError: (\[Errno (?:%d|%d)\].*|.*didn't write.*)" % DISK_FULL_ERRNOS
)  # of compileall
_COMPILE_OPTIONS = (
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
class PackedLayer:
    """A layer of a chain. `image` is None if its owner, another user, has not packed it."""

    environment: str
    path: Path
    image: Image | None
    made: bool = False


def pack(home: Home, environment: Environment) -> list[PackedLayer]:
    """Pack the layer of an environment and those of its parents that belong to the caller; intact images stay."""
    layer = require_owner(home, environment).usable
    if layer.editable:
        raise Refused(
            f"{environment} has projects in place: {', '.join(layer.editable)}",
            "they may change, so they cannot be packed; install them as packages",
        )
    return [_pack_layer(home, link) for link in _chain(environment, layer)]


def remove_image(home: Home, environment: Environment) -> list[Path]:
    """Remove the image of an environment's layer; images of its parents stay."""
    path = require_owner(home, environment).path
    existing = [path / name for name in (IMAGE_METADATA_FILE, IMAGE_FILE) if (path / name).exists()]
    with committing(home):
        for each in existing:  # the metadata first: it marks the image as complete
            each.unlink(missing_ok=True)
    return existing


def read_image(layer: Path) -> Image | None:
    """The metadata of a layer's image; None if the layer is not packed."""
    try:
        return parse_image(read_text(layer / IMAGE_METADATA_FILE))
    except (Unreadable, MalformedRecord):
        return None


def _chain(environment: Environment, layer: Layer) -> list[Parent]:
    own = Parent(environment.name, environment.owner, environment.layer_id, layer.lock_hash)
    return [own, *layer.parents]


def _pack_layer(home: Home, link: Parent) -> PackedLayer:
    path, environment = home.layer(link.owner, link.layer), f"{link.name}[{link.owner}]"
    existing = read_image(path)
    if link.owner != home.user:
        return PackedLayer(environment, path, existing)
    if existing is not None and _sha256(path / IMAGE_FILE) == existing.sha256:
        return PackedLayer(environment, path, existing)
    layer = read_layer(home, link.owner, link.layer)
    if layer is None:
        raise Busy(f"the layer of {environment} was removed by another command", "run it again")
    return PackedLayer(environment, path, _build_image(home, path, layer), made=True)


def _build_image(home: Home, path: Path, layer: Layer) -> Image:
    with build_directory(home) as work:
        modules = _compile_aside(path, layer, work / "modules")
        files, size = _write(path, modules, work / IMAGE_FILE)
        facts = Image(_sha256(work / IMAGE_FILE), (work / IMAGE_FILE).stat().st_size, size, files)
        (work / IMAGE_FILE).chmod(0o444)  # the mode of the layer's directory limits access
        replace_text(work / IMAGE_METADATA_FILE, to_toml(facts))
        with committing(home):  # everything that needs disk space is done
            (path / IMAGE_METADATA_FILE).unlink(missing_ok=True)
            (work / IMAGE_FILE).rename(path / IMAGE_FILE)
            (work / IMAGE_METADATA_FILE).rename(path / IMAGE_METADATA_FILE)
    return facts


def _compile_aside(path: Path, layer: Layer, cache_dir: Path) -> dict[str, Path]:
    """Bytecode in a temporary directory, by its name in the image. Modules that do not compile are left out."""
    site = site_packages(path, layer.minor)
    command = [str(path / "bin" / "python"), *_COMPILE_OPTIONS, "-s", str(site), str(site)]
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    variables |= {
        "PYTHONHASHSEED": "0",
        "PYTHONPYCACHEPREFIX": str(cache_dir),
    }  # -I would ignore them
    result = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=variables
    )
    if unwritten := _WRITE_FAILED.search(result.stdout):
        raise DiskFull(f"{cache_dir} has no space left for bytecode: {unwritten[1].decode()}")
    base = cache_dir.joinpath(*site.parts[1:])
    found = (each.relative_to(base) for each in base.rglob("*.pyc"))
    return {
        str(site.relative_to(path) / each.parent / "__pycache__" / each.name): base / each
        for each in found
    }


def _write(path: Path, modules: dict[str, Path], target: Path) -> tuple[int, int]:
    """Write the image; returns the number of files and the sum of their sizes."""
    from zstandard import ZstdCompressor

    found = {**dict(layer_files(path)), **modules}
    size = 0
    with target.open("xb") as file:
        with (
            ZstdCompressor(level=_COMPRESSION_LEVEL, threads=-1).stream_writer(
                file, closefd=False
            ) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
        ):
            for name in sorted(found):
                size += _add_member(archive, name, found[name])
        file.flush()
        os.fsync(file.fileno())
    return len(found), size


def layer_files(path: Path) -> Iterator[tuple[str, Path]]:
    """Files and links of a layer with their relative names, without the files that describe the layer."""
    for folder, folders, names in os.walk(path):
        folders[:] = [each for each in folders if each != "__pycache__"]
        links = [each for each in folders if os.path.islink(os.path.join(folder, each))]
        for name in (*names, *links):
            each = Path(folder, name)
            inside = str(each.relative_to(path))
            if inside not in DESCRIPTION_FILES and not inside.startswith("."):
                yield inside, each


def _add_member(archive: tarfile.TarFile, name: str, path: Path) -> int:
    info = tarfile.TarInfo(name)
    if path.is_symlink():
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, os.readlink(path), 0o777
        archive.addfile(info)
        return 0
    if not path.is_file():
        raise BuildFailed(f"{path} is neither a file nor a link, so it cannot be packed")
    with path.open("rb") as file:  # libraries of CUDA have gigabytes
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
