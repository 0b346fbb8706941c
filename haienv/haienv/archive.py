"""Exports and imports environments as tar files with metadata, lock, and the files of the layer without its parents.

An import creates a new virtual environment, because the interpreter may have another path. It extracts the files, and
compares each one with the RECORD files. Members that leave the layer or are not regular files are refused.
"""

from __future__ import annotations

import io
import os
import secrets
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from gzip import BadGzipFile
from pathlib import Path, PurePath

from haienv.errors import Refused, UsageError
from haienv.layers.packing import list_layer_files
from haienv.layers.pth_links import HAIENV_FILES
from haienv.store.layout import (
    DESCRIPTION_FILES,
    LAYER_FILE,
    LOCK_FILE,
    METADATA_FILE,
    site_packages,
)
from haienv.store.records import (
    EnvMetadata,
    Layer,
    MalformedRecord,
    parse_layer,
    parse_metadata,
    to_toml,
)
from haienv.store.registry import Environment
from haienv.store.requirements_lock import Lock, parse_lock

_MAX_RECORD_BYTES = {METADATA_FILE: 256 * 1024, LAYER_FILE: 256 * 1024, LOCK_FILE: 16 * 1024 * 1024}
_PACKAGES, _PROGRAMS, _OTHERS = "site-packages", "bin", "prefix"
_REGENERATED = (*DESCRIPTION_FILES, "pyvenv.cfg")
_MAX_BYTES = 64 * 1024**3


@dataclass(frozen=True, slots=True)
class Archive:
    """The contents of an archive besides the files of the layer."""

    metadata: EnvMetadata
    layer: Layer
    lock: Lock


def write_archive(environment: Environment, target: Path) -> None:
    """Write an archive of an environment. It is compressed if the name of `target` ends in .gz or .xz."""
    layer = environment.usable_layer
    if layer.editable:
        raise Refused(
            f"{environment} has projects in place: {', '.join(layer.editable)}",
            "install them as packages first",
        )
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with _create_tar(temporary, target.suffix) as archive:
            for name, text in _format_records(environment):
                _add_text(archive, name, text)
            _add_files(archive, environment.path, site_packages(Path(), layer.minor_version))
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _create_tar(path: Path, suffix: str) -> tarfile.TarFile:
    """Create a tar file that stores each file with its contents, also files with several hard links."""
    if suffix == ".gz":
        return tarfile.open(path, "w:gz", compresslevel=1, dereference=True)
    return tarfile.open(path, "w:xz" if suffix == ".xz" else "w", dereference=True)


def _format_records(environment: Environment) -> Iterator[tuple[str, str]]:
    yield METADATA_FILE, to_toml(environment.metadata)
    yield LAYER_FILE, to_toml(environment.usable_layer)
    yield LOCK_FILE, environment.lock()


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(text.encode())
    archive.addfile(info, io.BytesIO(text.encode()))


def _add_files(archive: tarfile.TarFile, layer: Path, site: Path) -> None:
    for relative, path in sorted(list_layer_files(layer)):
        if not path.is_symlink() and (name := _member_name(PurePath(relative), site)):
            archive.add(path, name, recursive=False, filter=_anonymize)


def _member_name(path: PurePath, site: Path) -> str:
    """Return the name in the archive of a file in the layer; empty if an import generates the file again."""
    if path.is_relative_to(site):
        in_site = str(path.relative_to(site))
        return "" if in_site in HAIENV_FILES else f"{_PACKAGES}/{in_site}"
    if path.parts[0] == _PROGRAMS:
        return "" if path.name in HAIENV_FILES else str(path)
    return "" if str(path) in _REGENERATED else f"{_OTHERS}/{path}"


def _anonymize(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.type = tarfile.REGTYPE
    return info


def read_archive(path: Path) -> Archive:
    """Read the records of an archive. Raise UsageError if the archive is damaged or none of haienv."""
    with _open_tar(path) as archive:
        texts = {name: _read_member(path, archive, name) for name in _MAX_RECORD_BYTES}
    lock = parse_lock(texts[LOCK_FILE])
    try:
        metadata, layer = parse_metadata(texts[METADATA_FILE]), parse_layer(texts[LAYER_FILE])
    except MalformedRecord as error:
        raise UsageError(f"{path} is damaged: {error}") from error
    if lock is None or lock.hash != layer.lock_hash:
        raise UsageError(f"{path} is damaged: the lock does not belong to the layer")
    return Archive(metadata, layer, lock)


@contextmanager
def _open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive for reading. Raise UsageError for damage, also if the block finds it."""
    import zlib
    from lzma import LZMAError

    try:
        with tarfile.open(path) as archive:
            yield archive
    except (tarfile.TarError, EOFError, LZMAError, zlib.error, BadGzipFile) as error:
        message = f"{path} is not an archive of haienv, or is damaged"
        raise UsageError(message, "`haienv export` creates archives") from error


def _read_member(path: Path, archive: tarfile.TarFile, name: str) -> str:
    try:
        info = archive.getmember(name)
    except KeyError as error:
        raise UsageError(f"{path} is not an archive of haienv: it has no {name}") from error
    if not info.isreg() or info.size > _MAX_RECORD_BYTES[name]:
        raise UsageError(f"{path}: {name} is invalid")
    file = archive.extractfile(info)
    assert file is not None
    return file.read().decode(errors="replace")


def extract_files(path: Path, layer: Path, site: Path) -> None:
    """Extract the files of an archive into a new layer."""
    directories = {_PACKAGES: site, _PROGRAMS: layer / "bin", _OTHERS: layer}
    with _open_tar(path) as archive:
        members = archive.getmembers()
        if sum(each.size for each in members) > _MAX_BYTES:
            raise Refused(f"{path} has more than {_MAX_BYTES >> 30} GiB of files")
        for member in members:
            if member.name not in _MAX_RECORD_BYTES:
                _extract_member(path, archive, member, directories)


def _extract_member(
    path: Path, archive: tarfile.TarFile, info: tarfile.TarInfo, directories: Mapping[str, Path]
) -> None:
    """Extract one file of an archive. Raise Refused if it is not a regular file with a valid name."""
    kind, _, relative = info.name.partition("/")
    parts = relative.split("/")
    is_unsafe = not relative or "\0" in relative or any(part in ("", ".", "..") for part in parts)
    is_regenerated = kind == _OTHERS and relative in _REGENERATED
    if (
        kind not in directories
        or is_unsafe
        or is_regenerated
        or not info.isreg()
        or info.issparse()
    ):
        raise Refused(f"{path} holds {info.name!r}, which cannot be part of an environment")
    target = directories[kind].joinpath(*parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    file = archive.extractfile(info)
    assert file is not None
    with target.open("xb") as out:
        while part := file.read(1 << 20):
            out.write(part)
    target.chmod(0o555 if info.mode & 0o111 else 0o444)
