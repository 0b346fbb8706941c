"""Labels of nodes: what a request may say, by the rules that Kubernetes has for its own.

They are ours: kept in the store, never written to Kubernetes. So that nobody takes them for what decides a node's group
or zone there, the names that the watcher reads are refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from hai.v1 import node_service_pb2 as pb
from hai_backend.api.audit.rows import describe_change
from hai_backend.api.request import limits
from hai_backend.api.request.field_checks import LABEL, Rules
from hai_backend.domain.node import Labels

_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_WORD_RULE = (
    "1 to 63 letters, digits, '-', '_' and '.', with a letter or digit at its begin and end"
)
_PREFIX_RULE = "a DNS name of at most 253 characters before the '/'"
_PREFIX_CHARS = 253
_SHOWN = 80  # characters of a key
_TAKEN = ("hai.dev", "kubernetes.io", "k8s.io")
_THERE = "what it says is changed there: kubectl label node"


def watched(table: Mapping[str, Any]) -> frozenset[str]:
    """The names that operators chose, in [kubernetes], for what the watcher reads of a node."""
    named = (table.get("group_label", ""), table.get("zone_label", ""))
    return frozenset([*filter(None, named), *table.get("topology_labels", ())])


def check(request: pb.LabelNodeRequest, watched: Collection[str]) -> None:
    """Raise Invalid with all violations. `watched`: names that the watcher of Kubernetes reads."""
    rules = Rules()
    if not request.labels and not request.remove:
        rules.add("labels", "nothing to change: name a label to set, or one to remove")
    for key in sorted({*request.labels, *request.remove}):
        _key(rules, key, watched)
    for key, value in sorted(request.labels.items()):
        if value:
            rules.matching(f"labels[{key[:_SHOWN]}]", value, _WORD, f"empty, or {_WORD_RULE}")
    for key in sorted(set(request.remove).intersection(request.labels)):
        rules.add(f"labels[{key}]", "is both set and removed")
    rules.check()


def change(before: Labels, request: pb.LabelNodeRequest) -> Labels:
    """The labels afterwards, by name; the audit is told the difference. Raises Invalid when they are too many."""
    labels = {**{key: v for key, v in before if key not in request.remove}, **request.labels}
    if len(labels) > limits.LABELS:
        rules = Rules()
        rules.add("labels", f"would be {len(labels)} labels; at most {limits.LABELS} are allowed")
        rules.check()
    after = tuple(sorted(labels.items()))
    describe_change(difference(before, after))
    return after


def difference(before: Labels, after: Labels) -> str:
    """Old and new values of what was changed, for the audit: `rack: r1 -> r2; old: x -> none`."""
    old, new = dict(before), dict(after)
    keys = sorted(key for key in {**old, **new} if old.get(key) != new.get(key))
    told = (f"{key}: {_told(old.get(key))} -> {_told(new.get(key))}" for key in keys)
    return "; ".join(told) or "nothing changed"


def _told(value: str | None) -> str:
    return "none" if value is None else repr(value)


def _key(rules: Rules, key: str, watched: Collection[str]) -> None:
    prefix, slash, name = key.rpartition("/")
    field = f"labels[{key[:_SHOWN]}]"
    rules.matching(field, name, _WORD, _WORD_RULE)
    if slash and not _is_dns_name(prefix):
        rules.add(field, f"must have {_PREFIX_RULE}")
    if any(f".{prefix}".endswith(f".{taken}") for taken in _TAKEN):
        rules.add(field, f"has a prefix kept for Kubernetes and this platform; {_THERE}")
    elif key in watched:
        rules.add(field, f"is read from the node in Kubernetes; {_THERE}")


def _is_dns_name(prefix: str) -> bool:
    return len(prefix) <= _PREFIX_CHARS and all(LABEL.fullmatch(p) for p in prefix.split("."))
