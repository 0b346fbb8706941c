"""Rewrites two kinds of installed files, and their entries in RECORD, before a layer is sealed.

A URL in `direct_url.json` may contain a token, which other users of the layer must not read. Python decodes `.pth`
files in the encoding of the locale and strips blanks: under LC_ALL=C, a project in `/home/ada/проект` would crash every
Python of the environment at its start.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from hai.redaction import without_credentials
from haienv.digests import to_record_hash
from haienv.layers.installed import list_dist_infos
from haienv.store.untrusted_io import LOCK_LIMIT_BYTES, Unreadable, read_bytes, read_text

_PTH_LINE = "import os, sys; sys.path.append(os.fsdecode({path!r}))"


def sanitize_installed(site: Path) -> None:
    """Remove credentials from direct_url.json files, and make .pth files independent of the locale."""
    changed = {**dict(_redact_direct_urls(site)), **dict(_convert_pth_files(site))}
    for path, data in changed.items():
        _replace_file(path, data)
    for _, _, info in list_dist_infos(site) if changed else ():
        _update_record(site, info / "RECORD", changed)


def _redact_direct_urls(site: Path) -> Iterator[tuple[Path, bytes]]:
    for _, _, info in list_dist_infos(site):
        path = info / "direct_url.json"
        with suppress(Unreadable):
            text = read_text(path)
            if (clean := without_credentials(text)) != text:
                yield path, clean.encode()


def _convert_pth_files(site: Path) -> Iterator[tuple[Path, bytes]]:
    for path in site.glob("*.pth"):
        with suppress(Unreadable):
            data = read_bytes(path)
            lines = data.splitlines()
            if (converted := [*map(_convert_pth_line, lines)]) != lines:
                yield path, b"\n".join(converted) + b"\n"


def _convert_pth_line(line: bytes) -> bytes:
    """Replace a path by code that appends the path in every locale; plain paths and other lines stay."""
    is_plain = line.isascii() and line == line.strip()
    return line if is_plain or not line.startswith(b"/") else _PTH_LINE.format(path=line).encode()


def _update_record(site: Path, record: Path, changed: Mapping[Path, bytes]) -> None:
    try:
        rows = list(csv.reader(read_text(record, LOCK_LIMIT_BYTES).splitlines()))
    except (Unreadable, csv.Error):
        return
    updated = [_update_row(site, row, changed) for row in rows]
    if updated != rows:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(updated)
        _replace_file(record, text.getvalue().encode())


def _update_row(site: Path, row: list[str], changed: Mapping[Path, bytes]) -> list[str]:
    data = changed.get(Path(os.path.normpath(site / row[0]))) if row else None
    if data is None:
        return row
    return [row[0], to_record_hash(sha256(data).hexdigest()), str(len(data))]


def _replace_file(path: Path, data: bytes) -> None:
    """Replace a file instead of writing into it: it may be a hard link into the installer's cache."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(data)
    os.replace(temporary, path)
