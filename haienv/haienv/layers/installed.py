"""Lists the distributions in a site-packages directory from file names and metadata; nothing is imported or run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote, urlsplit

from haienv.layers.plan import Distribution
from haienv.store.lock_file import normalize_name
from haienv.store.untrusted_io import LOCK_LIMIT, Unreadable, entries, read_text

_INFO = re.compile(r"([A-Za-z0-9][\w.]*)-([\w.+!]+)(?:-py\d[\d.]*)?\.(dist|egg)-info")
_REQUIRES = re.compile(r"^Requires-Dist:\s*([A-Za-z0-9][A-Za-z0-9._-]*)(.*)$", re.M | re.I)


def dist_infos(site: Path) -> Iterator[tuple[str, str, Path]]:
    """Name, version and metadata directory (or file) of each distribution; no file is opened."""
    for entry in entries(site):
        if found := _INFO.fullmatch(entry.name):
            yield normalize_name(found[1]), found[2], Path(entry.path)


def versions(sites: Iterable[Path]) -> dict[str, str]:
    """Versions by name; the first directory wins."""
    result: dict[str, str] = {}
    for site in sites:
        for name, version, _ in dist_infos(site):
            result.setdefault(name, version)
    return result


def distributions(sites: Iterable[Path]) -> tuple[Distribution, ...]:
    """All distributions with their requirements, in the order of the directories."""
    return tuple(
        Distribution(name, version, _compiled(info), _requires(info))
        for site in sites
        for name, version, info in dist_infos(site)
    )


def fingerprint(sites: Iterable[Path]) -> str:
    """A hash of the names and versions of all distributions."""
    lines = sorted(f"{name}=={version}" for name, version in versions(sites).items())
    return sha256("\n".join(lines).encode()).hexdigest()


def is_not_from_index(info: Path) -> bool:
    """True if no index has this version: installed from a path or a repository, or a local version."""
    return "+" in info.name or (info / "direct_url.json").exists()


def editable_projects(site: Path) -> dict[str, str]:
    """Directories of projects that are installed in place, by name."""
    found: dict[str, str] = {}
    for name, _, info in dist_infos(site):
        with suppress(Unreadable, ValueError, KeyError, TypeError):
            url_info = json.loads(read_text(info / "direct_url.json"))
            if url_info["dir_info"]["editable"]:
                found[name] = unquote(urlsplit(url_info["url"]).path)
    return found


def read_metadata(info: Path) -> str:
    """The METADATA of a distribution; empty if it cannot be read."""
    for path in (info / "METADATA", info / "PKG-INFO", info):
        try:
            return read_text(path, LOCK_LIMIT)
        except Unreadable:
            continue
    return ""


def _requires(info: Path) -> frozenset[str]:
    head = read_metadata(info).partition("\n\n")[0]  # a description follows
    needed = (found for found in _REQUIRES.finditer(head) if "extra ==" not in found[2])
    return frozenset(normalize_name(found[1]) for found in needed)


def _compiled(info: Path) -> bool:
    try:
        record = read_text(info / "RECORD", LOCK_LIMIT)
    except Unreadable:
        return False
    return re.search(r"\.(so|pyd|dylib)[,\n.]", record) is not None
