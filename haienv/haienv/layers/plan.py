"""Plans which distributions a layer installs, replaces, drops or shares with its parents. Pure.

`installed` are the distributions of the environment's layer, `resolved` those that the resolver chose for the layer and
its parents, `provided` those of the parents. A distribution that a parent provides in the resolved version is shared;
another version in the layer shadows that of the parent. A new shadow is refused if a compiled distribution of a parent
needs the shadowed one: compiled code was built against one version, and breaks at run time with another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Action(StrEnum):
    """What happens to a distribution."""

    INSTALL = "install"
    REPLACE = "replace"
    DROP = "drop"
    KEEP = "keep"
    SHARE = "share"  # use the version of a parent
    SHADOW = "shadow"  # install another version, which is found before that of a parent


@dataclass(frozen=True, slots=True)
class Distribution:
    """An installed distribution. `requires` are the normalized names of the distributions that it needs."""

    name: str
    version: str
    compiled: bool = False
    requires: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a plan. `needed_by` are the compiled distributions of parents that a shadow may break."""

    action: Action
    name: str
    version: str
    before: str = ""
    needed_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        is_change = self.before and self.version and self.before != self.version
        change = f"{self.before} -> {self.version}" if is_change else self.version or self.before
        return f"{self.action.value:<8} {self.name} {change}"


Versions = Mapping[str, str]


def plan_steps(
    installed: Versions, resolved: Versions, provided: Iterable[Distribution] = ()
) -> tuple[Step, ...]:
    """Return the steps from `installed` to `resolved`, sorted by name."""
    by_name = {dist.name: dist for dist in reversed(tuple(provided))}
    steps = [_step(name, installed, resolved, by_name) for name in {*installed, *resolved}]
    return tuple(sorted(steps, key=lambda step: step.name))


def _step(
    name: str, installed: Versions, resolved: Versions, by_name: Mapping[str, Distribution]
) -> Step:
    """Return the step for one distribution."""
    before, version = installed.get(name, ""), resolved.get(name, "")
    parent = by_name.get(name)
    if not version:
        return Step(Action.DROP, name, "", before)
    if parent is not None and parent.version == version:
        return Step(Action.SHARE, name, version)
    if before == version:
        return Step(Action.KEEP, name, version, before)
    if parent is not None:
        return Step(
            Action.SHADOW, name, version, parent.version, _compiled_dependents(name, by_name)
        )
    return Step(Action.REPLACE if before else Action.INSTALL, name, version, before)


def _compiled_dependents(name: str, by_name: Mapping[str, Distribution]) -> tuple[str, ...]:
    """Return the compiled distributions of the parents that need `name`, directly or indirectly."""
    return tuple(
        dist.name
        for dist in sorted(by_name.values(), key=lambda d: d.name)
        if dist.compiled and dist.name != name and name in _transitive_requires(dist, by_name)
    )


def _transitive_requires(start: Distribution, by_name: Mapping[str, Distribution]) -> set[str]:
    required: set[str] = set()
    pending = list(start.requires)
    while pending:
        name = pending.pop()
        if name not in required:
            required.add(name)
            pending.extend(by_name[name].requires if name in by_name else ())
    return required


def names_in_layer(steps: Iterable[Step]) -> frozenset[str]:
    """Return the names of the distributions that the layer contains after the steps."""
    contained = (Action.INSTALL, Action.REPLACE, Action.KEEP, Action.SHADOW)
    return frozenset(step.name for step in steps if step.action in contained)


def find_breaking_shadows(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the shadows that may break compiled packages of a parent."""
    return tuple(step for step in steps if step.action is Action.SHADOW and step.needed_by)


def select_changes(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the steps that change the layer."""
    return tuple(step for step in steps if step.action not in (Action.KEEP, Action.SHARE))
