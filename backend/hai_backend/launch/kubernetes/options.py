"""Reads and validates the table [kubernetes] of the server's settings.

Its keys are the fields of ClusterSettings (how pods are built) and of Options (how the launcher uses the cluster).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, get_type_hints

from hai_backend.domain.errors import Invalid, Violation
from hai_backend.domain.mounts.paths import check_path
from hai_backend.domain.mounts.variables import Problem
from hai_backend.domain.shared_dirs import parse_volume
from hai_backend.launch.manifests.settings import ClusterSettings, Toleration


@dataclass(frozen=True, slots=True)
class Options:
    """The settings that control how the launcher uses the cluster. Times are in seconds."""

    kubeconfig: str = ""  # if empty, the service account of the server's pod
    context: str = ""
    node_selector: str = ""  # selects the nodes to use, for example `pool=hai`; if empty, all nodes
    zone_label: str = "hai.dev/zone"
    topology_labels: tuple[str, ...] = ()  # the label of the leaf switch first
    relist_seconds: float = 300.0
    lost_after: float = 30.0  # a node that is not ready for longer counts as lost
    trouble_within: float = 30.0  # a pod that cannot start for longer has failed
    kill_grace: float = 5.0  # the grace period of agents that are killed
    evict: bool = False  # use the Eviction API, which respects disruption budgets
    mark_preempted: bool = True  # set the condition DisruptionTarget on preempted pods


_DERIVED = {
    "instance": "cluster",
    "ca_pem": "tls_ca or tls_cert",
    "shared_path": "shared",
    "agent_heartbeat": "agent_heartbeat",
}
"""Fields that are derived from a setting outside the table."""


def read(table: Mapping[str, Any], base: Mapping[str, Any]) -> tuple[ClusterSettings, Options]:
    """Return the settings in the table. `base` has values from the server's other settings; the table overrides them.

    Raises Invalid with all violations.
    """
    kinds = {**_kinds(ClusterSettings), **_kinds(Options)}
    violations = [*_violations(table, kinds)]
    if violations:
        raise Invalid(tuple(violations), reason="BAD_SETTINGS")
    merged = {key: _value(value, kinds[key]) for key, value in {**base, **table}.items()}
    cluster = {key: value for key, value in merged.items() if key in _kinds(ClusterSettings)}
    options = {key: value for key, value in merged.items() if key in _kinds(Options)}
    settings = ClusterSettings(**cluster)
    violations = [*_missing(settings)]
    if violations:
        raise Invalid(tuple(violations), reason="BAD_SETTINGS")
    return settings, Options(**options)


def _missing(settings: ClusterSettings) -> Iterator[Violation]:
    """Yield the violations of settings that have the right types."""
    if not settings.agent_image and not settings.agent_path:
        message = "is needed (the image that brings the agent), or agent_path"
        yield Violation("kubernetes.agent_image", message)
    if settings.staging_path:
        yield from _staging_violations(settings)
    if settings.ingress_hosts and not settings.ingress_without_login:
        message = (
            "would let anybody who reaches them use http services of tasks; http_listen and http_url serve them "
            "behind a login. If that is wanted, set ingress_without_login = true"
        )
        yield Violation("kubernetes.ingress_hosts", message)
    try:
        if settings.shared_volume:
            parse_volume(settings.shared_volume)
    except Problem as problem:
        yield Violation("kubernetes.shared_volume", str(problem))


def _staging_violations(settings: ClusterSettings) -> Iterator[Violation]:
    try:
        check_path(settings.staging_path)
    except Problem as problem:
        yield Violation("kubernetes.staging_path", str(problem))
    if not settings.agent_image:
        message = "is needed for staging_path: the containers that prepare and write checkpoints use this image"
        yield Violation("kubernetes.agent_image", message)


def _kinds(of: type) -> dict[str, Any]:
    """Return the type annotations of the fields of a dataclass, by name."""
    hints = get_type_hints(of)
    return {f.name: hints[f.name] for f in fields(of)}


def _violations(table: Mapping[str, Any], kinds: Mapping[str, Any]) -> Iterator[Violation]:
    for key, value in table.items():
        if key in _DERIVED:
            message = f"is not a setting of this table: it follows from {_DERIVED[key]!r} above it"
            yield Violation(f"kubernetes.{key}", message)
        elif key not in kinds:
            similar = difflib.get_close_matches(key, kinds.keys() - _DERIVED.keys(), n=3)
            hint = f"; did you mean {' or '.join(similar)}?" if similar else ""
            yield Violation(f"kubernetes.{key}", f"no such setting{hint}")
        elif not _has_kind(value, kinds[key]):
            yield Violation(f"kubernetes.{key}", f"{value!r} is not {_NAMES[kinds[key]]}")


def _has_kind(value: Any, kind: Any) -> bool:
    """Return whether a value has the type of an annotation. A float may be an integer, but not negative."""
    if kind in (str, bool, int):
        return type(value) is kind
    if kind is float:
        return type(value) in (int, float) and value >= 0
    if kind == tuple[str, ...]:
        return isinstance(value, list | tuple) and all(type(v) is str for v in value)
    if kind == tuple[Toleration, ...]:
        return isinstance(value, list | tuple) and all(map(_is_toleration, value))
    return isinstance(value, Mapping) and all(type(v) is str for v in value.values())


def _is_toleration(value: Any) -> bool:
    required = {f.name for f in fields(Toleration) if f.default is MISSING}
    names = {f.name for f in fields(Toleration)}
    return isinstance(value, Toleration) or (
        isinstance(value, Mapping) and required <= value.keys() <= names
    )


def _value(value: Any, kind: Any) -> Any:
    """Convert a value from TOML to the type of an annotation."""
    if kind == tuple[Toleration, ...]:
        return tuple(v if isinstance(v, Toleration) else Toleration(**v) for v in value)
    if kind == tuple[str, ...]:
        return tuple(value)
    return float(value) if kind is float else value


_NAMES: Mapping[Any, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number from 0",
    tuple[str, ...]: "a list of texts",
    tuple[Toleration, ...]: "a list of tables with key, value, effect, seconds",
    Mapping[str, str]: "a table of texts",
}
