"""Validates a row of the mounts table when it is written. All violations are reported at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from hai_backend.domain.errors import Invalid, Violation
from hai_backend.domain.mounts.condition import parse_condition
from hai_backend.domain.mounts.mount import HostPathType, MountAction, MountKind, MountRow
from hai_backend.domain.mounts.paths import check_path, check_root, check_target
from hai_backend.domain.mounts.sources import check_source
from hai_backend.domain.mounts.template import parse_template
from hai_backend.domain.mounts.variables import Problem

_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CONDITIONS = 20
_OWNERS = 1000


def check_row(row: MountRow) -> None:
    """Raise Invalid with all violations. Columns refer to the text of the field."""
    violations = tuple(_violations(row))
    if violations:
        raise Invalid(violations, reason="BAD_MOUNT")


def _violations(row: MountRow) -> Iterator[Violation]:
    if not row.owners:
        yield Violation("owners", "must name users, user groups or public")
    if len(row.owners) > _OWNERS:
        yield Violation("owners", f"at most {_OWNERS} are allowed")
    for i, owner in enumerate(row.owners[:_OWNERS]):
        if not _OWNER.fullmatch(owner):
            yield Violation(f"owners[{i}]", f"{owner[:64]!r} is no user and no user group")
    if row.mount_code < 0:
        yield Violation("mount_code", f"must be 0 or a sum of bits, not {row.mount_code}")
    if len(row.conditions) > _CONDITIONS:
        yield Violation("conditions", f"at most {_CONDITIONS} are allowed")
    for i, condition in enumerate(row.conditions[:_CONDITIONS]):
        yield from _problem_of(f"conditions[{i}]", parse_condition, condition)
    yield from _removing(row) if row.action is MountAction.REMOVE else _adding(row)


def _removing(row: MountRow) -> Iterator[Violation]:
    yield from _problem_of("mount_path", _pattern, row.mount_path)
    yield from _problem_of("source", _pattern, row.source)


def _pattern(text: str) -> None:
    if "*" in text[:-1]:
        raise Problem(text.index("*") + 1, "a * stands at the end only")
    parse_template(text.removesuffix("*"))


def _adding(row: MountRow) -> Iterator[Violation]:
    tmpfs = row.kind is MountKind.TMPFS
    yield from _problem_of("mount_path", _target, row.mount_path, tmpfs)
    yield from _problem_of("source", _source, row.kind, row.source)
    if row.host_type is not HostPathType.ANY and row.kind is not MountKind.HOST_PATH:
        yield Violation("host_type", "is for hostPath only")
    if row.attributes and row.kind is not MountKind.CSI:
        yield Violation("attributes", "are for csi only")
    for key, text in row.attributes.items():
        if not _KEY.fullmatch(key):
            yield Violation(f"attributes[{key[:64]}]", "is no name of an attribute")
        yield from _problem_of(f"attributes[{key[:64]}]", _attribute, text)


def _target(text: str, tmpfs: bool) -> None:
    parse_template(text)
    check_root(text)
    check_target(check_path(text), shared_memory=tmpfs)


def _source(kind: MountKind, text: str) -> None:
    parse_template(text)
    check_source(kind, text)


def _attribute(text: str) -> None:
    if found := _CONTROL.search(text):
        raise Problem(found.start() + 1, "an attribute contains no control characters")
    parse_template(text)


def _problem_of(field: str, check: Callable[..., object], *arguments: Any) -> Iterator[Violation]:
    try:
        check(*arguments)
    except Problem as problem:
        yield Violation(field, str(problem))
