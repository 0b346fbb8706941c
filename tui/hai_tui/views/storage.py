"""Columns of mounts, of mount rules and of datasets."""

from __future__ import annotations

from hai.client.text.formatting import enum_name, size_text
from hai.v1.dataset_pb2 import Dataset, DatasetVisibility
from hai.v1.storage_pb2 import MountAction, MountKind, MountRule
from hai_tui.formatting.table import Column, View
from hai_tui.formatting.values import local


def _mount_kind(number: int) -> str:
    return enum_name(MountKind, number)


def _access(writable: bool) -> str:
    return "write" if writable else "read"


def _conditions_text(rule: MountRule, now: float) -> str:
    code = [f"mount_code & {rule.mount_code}"] if rule.mount_code else []
    return " and ".join([*rule.conditions, *code]) or "-"


MOUNTS = View(
    key="mounts",
    name=lambda mount: mount.mount_path,
    empty="none.mounts",
    columns=(
        Column("path", lambda m, now: m.mount_path),
        Column("kind", lambda m, now: _mount_kind(m.kind)),
        Column("access", lambda m, now: _access(m.writable)),
        Column("source", lambda m, now: m.source or "-", folds=True),
    ),
)

RULES = View(
    key="rules",
    name=lambda rule: str(rule.id),
    empty="none.rules",
    columns=(
        Column("id", lambda r, now: str(r.id), right=True),
        Column("action", lambda r, now: enum_name(MountAction, r.action)),
        Column("owners", lambda r, now: ",".join(r.owners)),
        Column("path", lambda r, now: r.mount_path),
        Column("kind", lambda r, now: _mount_kind(r.kind)),
        Column("access", lambda r, now: _access(r.writable)),
        Column("source", lambda r, now: r.source or "-", folds=True),
        Column("when", _conditions_text, folds=True),
        Column("host_type", lambda r, now: r.host_type or "-", wide=True),
        Column(
            "attributes",
            lambda r, now: ",".join(f"{k}={v}" for k, v in sorted(r.attributes.items())) or "-",
            wide=True,
            folds=True,
        ),
    ),
)


def _visibility(dataset: Dataset, now: float) -> str:
    return enum_name(DatasetVisibility, dataset.visibility)


DATASETS = View(
    key="datasets",
    name=lambda dataset: f"{dataset.name}:{dataset.version}",
    empty="none.datasets",
    columns=(
        Column("dataset", lambda d, now: f"{d.name}:{d.version}"),
        Column("visibility", _visibility),
        Column("user_group", lambda d, now: d.user_group or "-"),
        Column("size", lambda d, now: size_text(d.size_bytes) if d.size_bytes else "-", right=True),
        Column("path", lambda d, now: d.path, folds=True),
        Column("owner", lambda d, now: d.owner, wide=True),
        Column("created", lambda d, now: local(d.create_time), wide=True),
        Column("description", lambda d, now: d.description or "-", wide=True, folds=True),
    ),
)
