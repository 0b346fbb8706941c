"""Lists the distributions in site-packages directories. It reads names and metadata, and imports or runs nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from haienv.digests import hash_text
from haienv.layers.plan import Distribution
from haienv.store.requirements_lock import normalize_name
from haienv.store.untrusted_io import LOCK_LIMIT_BYTES, Unreadable, list_entries, read_text

_INFO = re.compile(r"([A-Za-z0-9][\w.]*)-([\w.+!]+)(?:-py\d[\d.]*)?\.(dist|egg)-info")
_REQUIRES = re.compile(r"^Requires-Dist:\s*([A-Za-z0-9][A-Za-z0-9._-]*)(.*)$", re.M | re.I)


def list_dist_infos(site: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield name, version and metadata directory (or file) of each distribution, without opening any file."""
    for entry in list_entries(site):
        if match := _INFO.fullmatch(entry.name):
            yield normalize_name(match[1]), match[2], Path(entry.path)


def read_versions(sites: Iterable[Path]) -> dict[str, str]:
    """Return the versions by name. If several directories contain a distribution, the first one counts."""
    result: dict[str, str] = {}
    for site in sites:
        for name, version, _ in list_dist_infos(site):
            result.setdefault(name, version)
    return result


def read_distributions(sites: Iterable[Path]) -> tuple[Distribution, ...]:
    """Return all distributions with their requirements, in the order of the directories."""
    return tuple(
        Distribution(name, version, _is_compiled(info), _read_requires(info))
        for site in sites
        for name, version, info in list_dist_infos(site)
    )


def hash_packages(sites: Iterable[Path]) -> str:
    """Return a hash of the names and versions of all distributions."""
    lines = sorted(f"{name}=={version}" for name, version in read_versions(sites).items())
    return hash_text("\n".join(lines))


def is_not_from_index(info: Path) -> bool:
    """Return True if no index has this version: it is a local version, or comes from a path or a repository."""
    return "+" in info.name or (info / "direct_url.json").exists()


def find_editable_projects(site: Path) -> dict[str, str]:
    """Return the directories of projects that are installed in place, by name."""
    directories: dict[str, str] = {}
    for name, _, info in list_dist_infos(site):
        with suppress(Unreadable, ValueError, KeyError, TypeError):
            url_info = json.loads(read_text(info / "direct_url.json"))
            if url_info["dir_info"]["editable"]:
                directories[name] = unquote(urlsplit(url_info["url"]).path)
    return directories


def read_metadata(info: Path) -> str:
    """Return the METADATA of a distribution; empty if it cannot be read."""
    for path in (info / "METADATA", info / "PKG-INFO", info):
        try:
            return read_text(path, LOCK_LIMIT_BYTES)
        except Unreadable:
            continue
    return ""


def _read_requires(info: Path) -> frozenset[str]:
    headers = read_metadata(info).partition("\n\n")[0]  # a description follows
    required = (match for match in _REQUIRES.finditer(headers) if "extra ==" not in match[2])
    return frozenset(normalize_name(match[1]) for match in required)


def _is_compiled(info: Path) -> bool:
    try:
        record = read_text(info / "RECORD", LOCK_LIMIT_BYTES)
    except Unreadable:
        return False
    return re.search(r"\.(so|pyd|dylib)[,\n.]", record) is not None
