"""Converts mounts and mount rules to messages and back."""

from __future__ import annotations

from hai.v1 import storage_pb2 as pb
from hai_backend.api.request.field_checks import FieldViolations
from hai_backend.domain.errors import Invalid
from hai_backend.domain.mounts.mount import HostPathType, Mount, MountAction, MountKind, MountRow
from hai_backend.domain.mounts.validation import check_row

_KINDS = {kind: pb.MountKind.Value(f"MOUNT_KIND_{kind.name}") for kind in MountKind}
_KINDS_BY_NUMBER: dict[int, MountKind] = {number: kind for kind, number in _KINDS.items()}
_ACTIONS = {a: pb.MountAction.Value(f"MOUNT_ACTION_{a.name}") for a in MountAction}
_ACTIONS_BY_NUMBER: dict[int, MountAction] = {number: a for a, number in _ACTIONS.items()}


def rule_to_proto(row: MountRow) -> pb.MountRule:
    return pb.MountRule(
        id=row.id,
        owners=row.owners,
        action=_ACTIONS[row.action],
        mount_path=row.mount_path,
        source=row.source,
        kind=_KINDS[row.kind],
        host_type=row.host_type.value,
        attributes=row.attributes,
        conditions=row.conditions,
        writable=not row.read_only,
        mount_code=row.mount_code,
    )


def rule_from_proto(message: pb.MountRule, id: int) -> MountRow:
    """Return a validated rule with this id. Raises Invalid with every violation."""
    violations = FieldViolations()
    for field, number, valid in (
        ("action", message.action, _ACTIONS_BY_NUMBER),
        ("kind", message.kind, _KINDS_BY_NUMBER),
    ):
        if number and number not in valid:
            violations.add(f"rule.{field}", f"{number} is not known to this server")
    row = MountRow(
        owners=tuple(dict.fromkeys(message.owners)),
        mount_path=message.mount_path,
        source=message.source,
        id=id,
        action=_ACTIONS_BY_NUMBER.get(message.action, MountAction.ADD),
        kind=_KINDS_BY_NUMBER.get(message.kind, MountKind.HOST_PATH),
        host_type=violations.check_choice(
            "rule.host_type", message.host_type, HostPathType, HostPathType.ANY
        ),
        attributes=dict(message.attributes),
        conditions=tuple(message.conditions),
        read_only=not message.writable,
        mount_code=message.mount_code,
    )
    try:
        check_row(row)
    except Invalid as error:
        for violation in error.violations:
            violations.add(f"rule.{violation.field}", violation.message, error.reason)
    violations.raise_if_any()
    return row


def mount_to_proto(mount: Mount, *, with_source: bool) -> pb.Mount:
    """Convert a mount. The source is for operators only."""
    return pb.Mount(
        mount_path=mount.mount_path,
        kind=_KINDS[mount.kind],
        source=mount.source if with_source else "",
        writable=not mount.read_only,
    )
