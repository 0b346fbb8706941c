"""Strategic merge patch: lists are merged by a key, as the real types declare it.

The keys stand in one table by the name of the list. A name that means different things in different kinds (`ports`,
`conditions`) goes by the first of its keys that the entries have.
"""

from __future__ import annotations

from typing import Any

from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.errors import ApiError

MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "port"),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey",),
    "resourceClaims": ("name",),
    "conditions": ("type",),
    "addresses": ("type",),
    "ownerReferences": ("uid",),
    "secrets": ("name",),
    "podIPs": ("ip",),
    "hostIPs": ("ip",),
}
SETS = frozenset({"finalizers"})
_DIRECTIVES = ("$patch", "$retainKeys")


def strategic_merge(target: Any, patch: Body) -> Body:
    """A new value."""
    made: Body = dict(target) if isinstance(target, dict) else {}
    match patch.get("$patch"):
        case "replace":
            return {k: v for k, v in patch.items() if k != "$patch"}
        case "delete":
            return {}
        case None | "merge":
            pass
        case other:
            raise ApiError(400, f"Unknown patch type found: {other}")
    if (kept := patch.get("$retainKeys")) is not None:
        made = {k: v for k, v in made.items() if k in kept}
    for name, value in patch.items():
        _member(made, name, value)
    _order(made, patch)
    return made


def _member(made: Body, name: str, value: Any) -> None:
    if name in _DIRECTIVES or name.startswith("$setElementOrder/"):
        return
    if name.startswith("$deleteFromPrimitiveList/"):
        listed = name.partition("/")[2]
        made[listed] = [v for v in made.get(listed) or [] if v not in value]
    elif value is None:
        made.pop(name, None)
    elif isinstance(value, dict):
        made[name] = strategic_merge(made.get(name), value)
    elif isinstance(value, list):
        made[name] = _lists(name, made.get(name) or [], value)
    else:
        made[name] = value


def _lists(name: str, old: list[Any], patch: list[Any]) -> list[Any]:
    if name in SETS:
        return [*old, *(v for v in patch if v not in old)]
    key = _key(name, [*old, *patch])
    if key is None or {"$patch": "replace"} in patch:
        return [p for p in patch if not (isinstance(p, dict) and "$patch" in p)]
    made = list(old)
    for row in patch:
        if key not in row:
            raise ApiError(400, f"map: {row} does not contain declared merge key: {key}")
        _row(made, key, row)
    return made


def _key(name: str, rows: list[Any]) -> str | None:
    for key in MERGE_KEYS.get(name, ()):
        if any(isinstance(row, dict) and key in row for row in rows):
            return key
    return None


def _row(made: list[Body], key: str, row: Body) -> None:
    at = next((i for i, old in enumerate(made) if old.get(key) == row[key]), None)
    if row.get("$patch") == "delete":
        if at is not None:
            del made[at]
    elif at is None:
        made.append(strategic_merge({}, row))
    else:
        made[at] = strategic_merge(made[at], row)


def _order(made: Body, patch: Body) -> None:
    """$setElementOrder: entries that it names stand in its order, others keep behind them."""
    for name, wanted in patch.items():
        listed = name.removeprefix("$setElementOrder/")
        if listed == name or not isinstance(rows := made.get(listed), list):
            continue
        key = _key(listed, wanted)
        places = {str(w[key] if key else w): i for i, w in enumerate(wanted)}
        made[listed] = sorted(
            rows, key=lambda r: places.get(str(r[key] if key else r), len(places))
        )
