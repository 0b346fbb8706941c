"""Rewrites two kinds of installed files, and their entries in RECORD, before a layer is sealed.

A `direct_url.json` may contain a token of its URL, which other users of the layer must not read. A `.pth` file is
decoded in the encoding of the locale and stripped: under LC_ALL=C, a project in `/home/ada/проект` would crash every
Python of the environment at start.
"""

from __future__ import annotations

import csv
import io
import os
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from hai.redaction import without_credentials
from haienv.layers.installed import dist_infos
from haienv.store.untrusted_io import LOCK_LIMIT, Unreadable, read_bytes, read_text

_PTH_LINE = "import os, sys; sys.path.append(os.fsdecode({path!r}))"


def sanitize_installed(site: Path) -> None:
    """Remove credentials from direct_url.json files, and make .pth files independent of the locale."""
    if changed := {**dict(_direct_urls(site)), **dict(_path_files(site))}:
        for path, data in changed.items():
            _replace(path, data)
        for _, _, info in dist_infos(site):
            _record_again(site, info / "RECORD", changed)


def _direct_urls(site: Path) -> Iterator[tuple[Path, bytes]]:
    for _, _, info in dist_infos(site):
        path = info / "direct_url.json"
        with suppress(Unreadable):
            text = read_text(path)
            if (clean := without_credentials(text)) != text:
                yield path, clean.encode()


def _path_files(site: Path) -> Iterator[tuple[Path, bytes]]:
    for path in site.glob("*.pth"):
        with suppress(Unreadable):
            data = read_bytes(path)
            lines = data.splitlines()
            if (safe := [*map(_in_every_locale, lines)]) != lines:
                yield path, b"\n".join(safe) + b"\n"


def _in_every_locale(line: bytes) -> bytes:
    plain = line.isascii() and line == line.strip()
    return line if plain or not line.startswith(b"/") else _PTH_LINE.format(path=line).encode()


def _record_again(site: Path, record: Path, changed: Mapping[Path, bytes]) -> None:
    try:
        rows = list(csv.reader(read_text(record, LOCK_LIMIT).splitlines()))
    except (Unreadable, csv.Error):
        return
    new = [_row(site, row, changed) for row in rows]
    if new != rows:
        _replace(record, _csv(new))


def _row(site: Path, row: list[str], changed: Mapping[Path, bytes]) -> list[str]:
    data = changed.get(Path(os.path.normpath(site / row[0]))) if row else None
    if data is None:
        return row
    digest = urlsafe_b64encode(sha256(data).digest()).rstrip(b"=").decode()
    return [row[0], f"sha256={digest}", str(len(data))]


def _csv(rows: Iterable[Iterable[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _replace(path: Path, data: bytes) -> None:
    """Replace a file instead of writing into it: it may be a hard link into the installer's cache."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(data)
    os.replace(temporary, path)
