"""Checks and applies changes of the labels of nodes. The syntax is that of labels in Kubernetes.

Labels are kept in the store and never written to Kubernetes. Names of Kubernetes labels that set the group or zone of a
node are refused, because a label with such a name would have no effect here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from hai.v1 import node_service_pb2 as pb
from hai_backend.api.audit.rows import describe_change
from hai_backend.api.request import limits
from hai_backend.api.request.field_checks import LABEL, FieldViolations
from hai_backend.domain.node import Labels

_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_WORD_RULE = (
    "1 to 63 letters, digits, '-', '_' and '.', with a letter or digit at its begin and end"
)
_PREFIX_RULE = "a DNS name of at most 253 characters before the '/'"
_PREFIX_CHARS = 253
_MAX_SHOWN_CHARS = 80  # of a key
_RESERVED_PREFIXES = ("hai.dev", "kubernetes.io", "k8s.io")
_USE_KUBECTL = "change it in Kubernetes: kubectl label node"


def watched_labels(kubernetes: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the Kubernetes labels that the table [kubernetes] of the settings assigns a meaning."""
    names = (kubernetes.get("group_label", ""), kubernetes.get("zone_label", ""))
    return frozenset([*filter(None, names), *kubernetes.get("topology_labels", ())])


def check(request: pb.LabelNodeRequest, watched: Collection[str]) -> None:
    """Raise Invalid with every violation. `watched` are the names from `watched_labels`."""
    violations = FieldViolations()
    if not request.labels and not request.remove:
        violations.add("labels", "nothing to change: name a label to set, or one to remove")
    for key in sorted({*request.labels, *request.remove}):
        _check_key(violations, key, watched)
    for key, value in sorted(request.labels.items()):
        if value:
            violations.check_pattern(
                f"labels[{key[:_MAX_SHOWN_CHARS]}]", value, _WORD, f"empty, or {_WORD_RULE}"
            )
    for key in sorted(set(request.remove).intersection(request.labels)):
        violations.add(f"labels[{key}]", "is both set and removed")
    violations.raise_if_any()


def update_labels(before: Labels, request: pb.LabelNodeRequest) -> Labels:
    """Return the labels after a request, by name, and describe the change for the audit. Raises Invalid."""
    labels = {**{key: v for key, v in before if key not in request.remove}, **request.labels}
    if len(labels) > limits.LABELS:
        violations = FieldViolations()
        violations.add(
            "labels", f"would be {len(labels)} labels; at most {limits.LABELS} are allowed"
        )
        violations.raise_if_any()
    after = tuple(sorted(labels.items()))
    describe_change(difference(before, after))
    return after


def difference(before: Labels, after: Labels) -> str:
    """Describe the changed labels for the audit: `rack: r1 -> r2; old: x -> none`."""
    old, new = dict(before), dict(after)
    keys = sorted(key for key in {**old, **new} if old.get(key) != new.get(key))
    changes = (f"{key}: {_format(old.get(key))} -> {_format(new.get(key))}" for key in keys)
    return "; ".join(changes) or "nothing changed"


def _format(value: str | None) -> str:
    return "none" if value is None else repr(value)


def _check_key(violations: FieldViolations, key: str, watched: Collection[str]) -> None:
    prefix, slash, name = key.rpartition("/")
    field = f"labels[{key[:_MAX_SHOWN_CHARS]}]"
    violations.check_pattern(field, name, _WORD, _WORD_RULE)
    if slash and not _is_dns_name(prefix):
        violations.add(field, f"must have {_PREFIX_RULE}")
    if any(f".{prefix}".endswith(f".{reserved}") for reserved in _RESERVED_PREFIXES):
        violations.add(field, f"has a prefix reserved for Kubernetes and HAI; {_USE_KUBECTL}")
    elif key in watched:
        violations.add(field, f"is a label of the node in Kubernetes; {_USE_KUBECTL}")


def _is_dns_name(prefix: str) -> bool:
    return len(prefix) <= _PREFIX_CHARS and all(LABEL.fullmatch(p) for p in prefix.split("."))
