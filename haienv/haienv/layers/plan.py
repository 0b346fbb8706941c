"""What must be done so that an environment has what is wanted. Pure: values in, steps out.

`installed` are the distributions of its own layer, `wanted` those that the resolver chose (its own and those of the
parents), `provided` what the parents bring. A distribution that the parents provide in the wanted version is used
from there; in another version it is shadowed. A new shadow is refused where a compiled distribution of a parent needs
what it hides: compiled code was built against one version, and breaks at run time with another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Action(StrEnum):
    """What happens to a distribution of the own layer."""

    INSTALL = "install"
    REPLACE = "replace"
    DROP = "drop"
    KEEP = "keep"
    SHARE = "share"  # it comes from a parent
    SHADOW = "shadow"  # its own version comes before a parent's


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution: `requires` are names, normalised."""

    name: str
    version: str
    compiled: bool = False
    requires: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a plan. `needed_by` are compiled distributions of parents that a shadow may break."""

    action: Action
    name: str
    version: str
    before: str = ""
    needed_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        both = self.before and self.version and self.before != self.version
        change = f"{self.before} -> {self.version}" if both else self.version or self.before
        return f"{self.action.value:<8} {self.name} {change}"


Versions = Mapping[str, str]


def plan(
    installed: Versions, wanted: Versions, provided: Iterable[Distribution] = ()
) -> tuple[Step, ...]:
    """The steps, by name."""
    below = {dist.name: dist for dist in reversed(tuple(provided))}
    steps = [_step(name, installed, wanted, below) for name in {*installed, *wanted}]
    return tuple(sorted(steps, key=lambda step: step.name))


def _step(
    name: str, installed: Versions, wanted: Versions, below: Mapping[str, Distribution]
) -> Step:
    before, version = installed.get(name, ""), wanted.get(name, "")
    parent = below.get(name)
    if not version:
        return Step(Action.DROP, name, "", before)
    if parent is not None and parent.version == version:
        return Step(Action.SHARE, name, version)
    if before == version:
        return Step(Action.KEEP, name, version, before)
    if parent is not None:
        return Step(Action.SHADOW, name, version, parent.version, _compiled_dependents(name, below))
    return Step(Action.REPLACE if before else Action.INSTALL, name, version, before)


def _compiled_dependents(name: str, below: Mapping[str, Distribution]) -> tuple[str, ...]:
    """Compiled distributions of the parents that need `name`, directly or through others."""
    return tuple(
        dist.name
        for dist in sorted(below.values(), key=lambda d: d.name)
        if dist.compiled and dist.name != name and name in _transitive_requires(dist, below)
    )


def _transitive_requires(start: Distribution, below: Mapping[str, Distribution]) -> set[str]:
    seen: set[str] = set()
    ahead = list(start.requires)
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead.extend(below[name].requires if name in below else ())
    return seen


def layer_names(steps: Iterable[Step]) -> frozenset[str]:
    """Names of what lies in the own layer afterwards."""
    mine = (Action.INSTALL, Action.REPLACE, Action.KEEP, Action.SHADOW)
    return frozenset(step.name for step in steps if step.action in mine)


def breaking_shadows(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Shadows that may break compiled packages of a parent."""
    return tuple(step for step in steps if step.action is Action.SHADOW and step.needed_by)


def changes(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Steps that change something."""
    return tuple(step for step in steps if step.action not in (Action.KEEP, Action.SHARE))
