"""Label and field selectors, as predicates over stored objects."""

from __future__ import annotations

import re
from collections.abc import Callable

from hai_backend.testing.kube.body import Body, dig
from hai_backend.testing.kube.errors import ApiError
from hai_backend.testing.kube.resources import Resource
from hai_backend.testing.kube.storage.store import StoredObject

Labels = dict[str, str]
Selection = Callable[[StoredObject], bool]
_KEY = r"(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?|"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)$")
_EQUAL = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})$")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})$")
_COMMA = re.compile(r",(?![^()]*\))")
_FIELD = re.compile(r"([\w.]+)(==|=|!=)(.*)$")


def label_selector(text: str) -> Callable[[Labels], bool]:
    """Parse the selector of a query, such as `a=b,c in (d,e),!f`."""
    parts = [p.strip() for p in _COMMA.split(text) if p.strip()]
    tests = [_label_test(part) for part in parts]
    return lambda labels: all(test(labels) for test in tests)


def object_selector(selector: Body | None) -> Callable[[Labels], bool]:
    """Parse the selector in an object. None selects nothing, and an empty selector selects everything."""
    if selector is None:
        return lambda labels: False
    match_labels: Labels = selector.get("matchLabels") or {}
    tests = [expression(e) for e in selector.get("matchExpressions") or []]

    def test(labels: Labels) -> bool:
        equal = all(labels.get(k) == v for k, v in match_labels.items())
        return equal and all(t(labels) for t in tests)

    return test


def expression(row: Body) -> Callable[[Labels], bool]:
    """Parse an entry of matchExpressions, of a label selector or of a node selector."""
    key, operator, values = row["key"], row["operator"], row.get("values") or []
    match operator:
        case "In":
            return lambda labels: labels.get(key) in values
        case "NotIn":
            return lambda labels: labels.get(key) not in values
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels
        case "Gt":
            return lambda labels: key in labels and int(labels[key]) > int(values[0])
        case "Lt":
            return lambda labels: key in labels and int(labels[key]) < int(values[0])
    raise ApiError(400, f'"{operator}" is not a valid label selector operator')


def selection(resource: Resource, labels: str, fields: str) -> Selection | None:
    """Parse the selectors of a list, watch or delete-collection; None if there are none."""
    if not labels and not fields:
        return None
    by_label, by_field = label_selector(labels), _field_selector(resource, fields)
    return lambda stored: by_label(stored.meta.get("labels") or {}) and by_field(stored)


def _label_test(part: str) -> Callable[[Labels], bool]:
    if found := _SET.match(part):
        key, values = found[1], {v.strip() for v in found[3].split(",")}
        if found[2] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUAL.match(part):
        key, operator, value = found.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _EXISTS.match(part):
        absent, key = bool(found[1]), found[2]
        return lambda labels: (key in labels) != absent
    raise ApiError(400, f"unable to parse requirement: found '{part}', expected: identifier")


def _field_selector(resource: Resource, text: str) -> Selection:
    tests = [_field_test(resource, part) for part in text.split(",") if part]
    return lambda stored: all(test(stored) for test in tests)


def _field_test(resource: Resource, part: str) -> Selection:
    found = _FIELD.match(part)
    if found is None:
        raise ApiError(400, f"invalid selector: '{part}'; can't understand '{part}'")
    path, operator, value = found.groups()
    if path not in resource.selectable():
        raise ApiError(400, f"field label not supported: {path}")
    differs = operator == "!="
    return lambda stored: (field(stored.body, path) == value) != differs


def field(body: Body, path: str) -> str:
    """Return a field as text, as selectors compare it."""
    value = dig(body, path, "")
    if path == "source":
        value = dig(body, "source.component", "")
    return str(value).lower() if isinstance(value, bool) else str(value)
