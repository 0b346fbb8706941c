"""An environment as one file: what it is, its lock, and the files of its own layer.

Taken apart again elsewhere: the skeleton of the layer is made anew there (its interpreter may lie elsewhere), files
are put in, and every one is compared with the RECORDs. What climbs out, or is no plain file, is refused.
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
from haienv.layers.packing import files_of
from haienv.layers.pth_links import OURS
from haienv.store.layout import LABEL, LOCK_TEXT, RECORD, TELLING, site_packages
from haienv.store.lock import Lock, parse
from haienv.store.records import Label, Layer, Malformed, label_from, layer_from, to_toml
from haienv.store.registry import Environment

_HEADS = {LABEL: 256 * 1024, RECORD: 256 * 1024, LOCK_TEXT: 16 * 1024 * 1024}
_PACKAGES, _PROGRAMS, _OTHERS = "site-packages", "bin", "prefix"
_MADE_ANEW = (*TELLING, "pyvenv.cfg")
_MOST_BYTES = 64 * 1024**3


@dataclass(frozen=True, slots=True)
class Archive:
    """What an archive says that it is."""

    label: Label
    layer: Layer
    lock: Lock


def write(environment: Environment, target: Path) -> None:
    """An archive of an environment; compressed when the name ends in .gz or .xz."""
    layer = environment.usable
    if layer.editable:
        raise Refused(
            f"{environment} has projects in place: {', '.join(layer.editable)}",
            "install them as packages first",
        )
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with _new(beside, target.suffix) as archive:
            for name, text in _heads(environment):
                _add_text(archive, name, text)
            _add_files(archive, environment.path, site_packages(Path(), layer.minor))
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def _new(path: Path, suffix: str) -> tarfile.TarFile:
    """Each file with its bytes, also where some of them are one file with several names."""
    if suffix == ".gz":
        return tarfile.open(path, "w:gz", compresslevel=1, dereference=True)
    return tarfile.open(path, "w:xz" if suffix == ".xz" else "w", dereference=True)


def _heads(environment: Environment) -> Iterator[tuple[str, str]]:
    yield LABEL, to_toml(environment.label)
    yield RECORD, to_toml(environment.usable)
    yield LOCK_TEXT, environment.lock()


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(text.encode())
    archive.addfile(info, io.BytesIO(text.encode()))


def _add_files(archive: tarfile.TarFile, layer: Path, site: Path) -> None:
    for inside, path in sorted(files_of(layer)):
        if not path.is_symlink() and (name := _name(PurePath(inside), site)):
            archive.add(path, name, recursive=False, filter=_plain)


def _name(inside: PurePath, site: Path) -> str:
    """What a file of a layer is called in the archive; empty: it is made anew where it is taken out."""
    if inside.is_relative_to(site):
        rest = str(inside.relative_to(site))
        return "" if rest in OURS else f"{_PACKAGES}/{rest}"
    if inside.parts[0] == _PROGRAMS:
        return "" if inside.name in OURS else str(inside)
    return "" if str(inside) in _MADE_ANEW else f"{_OTHERS}/{inside}"


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.type = tarfile.REGTYPE
    return info


def read(path: Path) -> Archive:
    """What an archive says that it is; nothing is taken out."""
    with _opened(path) as archive:
        texts = {name: _text(path, archive, name) for name in _HEADS}
    lock = parse(texts[LOCK_TEXT])
    try:
        label, layer = label_from(texts[LABEL]), layer_from(texts[RECORD])
    except Malformed as error:
        raise UsageError(f"{path} is damaged: {error}") from error
    if lock is None or lock.hash != layer.lock_hash:
        raise UsageError(f"{path} is damaged: its lock is not that of its layer")
    return Archive(label, layer, lock)


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    """For reading: what is damaged shows wherever it is read."""
    import zlib
    from lzma import LZMAError

    try:
        with tarfile.open(path) as archive:
            yield archive
    except (tarfile.TarError, EOFError, LZMAError, zlib.error, BadGzipFile) as error:
        message = f"{path} is not an archive of haienv, or it is damaged"
        raise UsageError(message, "`haienv export` makes them") from error


def _text(path: Path, archive: tarfile.TarFile, name: str) -> str:
    try:
        info = archive.getmember(name)
    except KeyError as error:
        raise UsageError(f"{path} is not an archive of haienv: it has no {name}") from error
    if not info.isreg() or info.size > _HEADS[name]:
        raise UsageError(f"{path}: {name} is not what it should be")
    file = archive.extractfile(info)
    assert file is not None
    return file.read().decode(errors="replace")


def unpack(path: Path, layer: Path, site: Path) -> None:
    """Put the files of an archive into a new layer."""
    folders = {_PACKAGES: site, _PROGRAMS: layer / "bin", _OTHERS: layer}
    with _opened(path) as archive:
        members = archive.getmembers()
        if sum(each.size for each in members) > _MOST_BYTES:
            raise Refused(f"{path} has more than {_MOST_BYTES >> 30} GiB of files")
        for member in members:
            if member.name not in _HEADS:
                _put(path, archive, member, folders)


def _put(
    path: Path, archive: tarfile.TarFile, info: tarfile.TarInfo, folders: Mapping[str, Path]
) -> None:
    kind, _, rest = info.name.partition("/")
    parts = rest.split("/")
    bad = not rest or "\0" in rest or any(part in ("", ".", "..") for part in parts)
    ours = kind == _OTHERS and rest in _MADE_ANEW
    if kind not in folders or bad or ours or not info.isreg() or info.issparse():
        raise Refused(f"{path} holds {info.name!r}, which does not belong into an environment")
    target = folders[kind].joinpath(*parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    file = archive.extractfile(info)
    assert file is not None
    with target.open("xb") as out:
        while part := file.read(1 << 20):
            out.write(part)
    target.chmod(0o555 if info.mode & 0o111 else 0o444)
