"""Validates the `source` of a mount by kind, both in the template of a row and after placeholders are replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from hai_backend.domain.mounts.mount import MountKind
from hai_backend.domain.mounts.paths import check_path, check_relative_path, check_root
from hai_backend.domain.mounts.variables import Problem

_HOLE = re.compile(r"\{[^{}]*\}")
_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_SERVER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_SIZE = re.compile(r"([1-9][0-9]{0,6})([KMGT]i)")
_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


def check_source(kind: MountKind, text: str) -> str:
    """Return the normalized source. Raises Problem."""
    return _CHECKS[kind](text)


def split_source(text: str) -> tuple[str, str]:
    """Return server and path, or name and subpath, which is empty for the whole volume."""
    first, _, rest = text.partition(":")
    return first, rest


def parse_size(text: str) -> int:
    """Return the size of a tmpfs in bytes. Raises Problem."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise Problem(1, f"{text[:40]!r} is no size: write 512Mi or 8Gi")
    return int(match[1]) * _UNITS[match[2]]


def _host_path(text: str) -> str:
    path = check_path(text)
    check_root(text)
    return path


def _nfs(text: str) -> str:
    server, path = split_source(text)
    if not _SERVER.fullmatch(server):
        raise Problem(1, "must be server:/path, with a server's name or address written out")
    check_root(path, len(server) + 2)
    return f"{server}:{check_path(path, len(server) + 2)}"


def _named(text: str) -> str:
    name, colon, path = text.partition(":")
    plain = _HOLE.sub("x", name)
    if not _NAME.fullmatch(plain) or len(plain) > 253:
        rule = "lower-case letters, digits, `-` and `.`, with a letter or digit at both ends"
        raise Problem(1, f"{name[:64]!r} is no name of a Kubernetes object: {rule}")
    if colon:
        check_relative_path(path, len(name) + 2)
    return text


def _driver(text: str) -> str:
    if not _NAME.fullmatch(text) or len(text) > 63:
        raise Problem(1, f"{text[:64]!r} is no CSI driver: write its name, as lustre.csi.hpe.com")
    return text


def _tmpfs(text: str) -> str:
    parse_size(text)
    return text


_CHECKS: Mapping[MountKind, Callable[[str], str]] = {
    MountKind.HOST_PATH: _host_path,
    MountKind.NFS: _nfs,
    MountKind.PVC: _named,
    MountKind.CONFIG_MAP: _named,
    MountKind.CSI: _driver,
    MountKind.TMPFS: _tmpfs,
}
