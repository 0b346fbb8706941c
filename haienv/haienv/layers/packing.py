"""Packs a layer into one image file, which nodes unpack to local disks: many small files are slow over NFS.

Images are reproducible and identified by their SHA-256: names are sorted, times and owners omitted. Modules are
compiled again to bytecode that is valid regardless of modification times. Agents unpack images
(hai_backend.environments.unpack); docs/contributing/environments.md describes the format.
"""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from haienv.digests import hash_file
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
from haienv.store.transaction import build_directory, hold_lease, replace_text
from haienv.store.untrusted_io import Unreadable, read_text

_COMPRESSION_LEVEL = 6
# Messages of compileall
_WRITE_FAILED = re.compile(rb"OSError: (\[Errno (?:%d|%d)\].*|.*didn't write.*)" % DISK_FULL_ERRNOS)
_COMPILE_OPTIONS = (
    *("-P", "-s", "-B", "-m", "compileall", "-q", "-f"),
    *("--invalidation-mode", "unchecked-hash"),
)


@dataclass(frozen=True, slots=True)
class PackedLayer:
    """The layer of an environment or of a parent. `image` is None if its owner, another user, has not packed it."""

    environment: str
    path: Path
    image: Image | None
    is_new: bool = False


def pack(home: Home, environment: Environment) -> list[PackedLayer]:
    """Pack the layer of an environment, and the caller's layers among its parents. Intact images stay as they are."""
    layer = require_owner(home, environment).usable_layer
    if layer.editable:
        raise Refused(
            f"{environment} has projects in place: {', '.join(layer.editable)}",
            "they may change, so they cannot be packed; install them as packages",
        )
    top = Parent(environment.name, environment.owner, environment.layer_id, layer.lock_hash)
    return [_pack_layer(home, link) for link in (top, *layer.parents)]


def remove_image(home: Home, environment: Environment) -> list[Path]:
    """Remove the image of an environment's layer, but not those of its parents. Return the paths of removed files."""
    path = require_owner(home, environment).path
    existing = [path / name for name in (IMAGE_METADATA_FILE, IMAGE_FILE) if (path / name).exists()]
    with hold_lease(home):
        for each in existing:  # the metadata first, because it marks the image as complete
            each.unlink(missing_ok=True)
    return existing


def read_image(layer: Path) -> Image | None:
    """Return the metadata of a layer's image; None if the layer is not packed."""
    try:
        return parse_image(read_text(layer / IMAGE_METADATA_FILE))
    except (Unreadable, MalformedRecord):
        return None


def _pack_layer(home: Home, link: Parent) -> PackedLayer:
    """Pack one layer. Layers of other users, and layers with an intact image, stay as they are."""
    path, environment = home.layer(link.owner, link.layer), f"{link.name}[{link.owner}]"
    existing = read_image(path)
    if link.owner != home.user:
        return PackedLayer(environment, path, existing)
    if existing is not None and _hash_if_exists(path / IMAGE_FILE) == existing.sha256:
        return PackedLayer(environment, path, existing)
    layer = read_layer(home, link.owner, link.layer)
    if layer is None:
        raise Busy(f"the layer of {environment} was removed by another command", "run it again")
    return PackedLayer(environment, path, _build_image(home, path, layer), is_new=True)


def _build_image(home: Home, path: Path, layer: Layer) -> Image:
    """Build the image of a layer, and publish it under the lease."""
    with build_directory(home) as work:
        modules = _compile_aside(path, layer, work / "modules")
        files, size = _write_image(path, modules, work / IMAGE_FILE)
        digest, packed_size = _hash_if_exists(work / IMAGE_FILE), (work / IMAGE_FILE).stat().st_size
        image = Image(digest, packed_size, size, files)
        (work / IMAGE_FILE).chmod(0o444)  # the mode of the layer's directory limits access
        replace_text(work / IMAGE_METADATA_FILE, to_toml(image))
        with hold_lease(home):  # from here on, nothing needs disk space
            (path / IMAGE_METADATA_FILE).unlink(missing_ok=True)
            (work / IMAGE_FILE).rename(path / IMAGE_FILE)
            (work / IMAGE_METADATA_FILE).rename(path / IMAGE_METADATA_FILE)
    return image


def _compile_aside(path: Path, layer: Layer, cache_dir: Path) -> dict[str, Path]:
    """Compile modules into a temporary directory. Return the bytecode files by their names in the image.

    Modules that do not compile are left out.
    """
    site = site_packages(path, layer.minor_version)
    command = [str(path / "bin" / "python"), *_COMPILE_OPTIONS, "-s", str(site), str(site)]
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    # The option -I would ignore these variables.
    variables |= {"PYTHONHASHSEED": "0", "PYTHONPYCACHEPREFIX": str(cache_dir)}
    result = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=variables
    )
    if unwritten := _WRITE_FAILED.search(result.stdout):
        raise DiskFull(f"{cache_dir} has no space left for bytecode: {unwritten[1].decode()}")
    base = cache_dir.joinpath(*site.parts[1:])
    modules = (each.relative_to(base) for each in base.rglob("*.pyc"))
    return {
        str(site.relative_to(path) / each.parent / "__pycache__" / each.name): base / each
        for each in modules
    }


def _write_image(path: Path, modules: dict[str, Path], target: Path) -> tuple[int, int]:
    """Write the image. Return the number of files in it, and the sum of their sizes."""
    from zstandard import ZstdCompressor

    members = {**dict(list_layer_files(path)), **modules}
    size = 0
    with target.open("xb") as file:
        with (
            ZstdCompressor(level=_COMPRESSION_LEVEL, threads=-1).stream_writer(
                file, closefd=False
            ) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
        ):
            for name in sorted(members):
                size += _add_member(archive, name, members[name])
        file.flush()
        os.fsync(file.fileno())
    return len(members), size


def list_layer_files(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield relative name and path of the files and links in a layer, without the files that describe the layer."""
    for folder, folders, names in os.walk(path):
        folders[:] = [each for each in folders if each != "__pycache__"]
        links = [each for each in folders if os.path.islink(os.path.join(folder, each))]
        for name in (*names, *links):
            file = Path(folder, name)
            relative = str(file.relative_to(path))
            if relative not in DESCRIPTION_FILES and not relative.startswith("."):
                yield relative, file


def _add_member(archive: tarfile.TarFile, name: str, path: Path) -> int:
    """Add a file or link to an image. Return its size."""
    info = tarfile.TarInfo(name)
    if path.is_symlink():
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, os.readlink(path), 0o777
        archive.addfile(info)
        return 0
    if not path.is_file():
        raise BuildFailed(f"{path} is neither a file nor a link, so it cannot be packed")
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        info.size, info.mode = status.st_size, 0o555 if status.st_mode & 0o100 else 0o444
        archive.addfile(info, file)
    return info.size


def _hash_if_exists(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hash_file(file)
    except FileNotFoundError:
        return ""
