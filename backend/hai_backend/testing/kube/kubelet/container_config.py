"""Computes the variables, the command and the mounts of a container."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.kubelet.config_sources import ConfigSources

_NOWHERE = ("*.invalid/*",)


@dataclass(frozen=True, slots=True)
class Images:
    """The available images. An image can be pulled if its name matches a pattern of `known` and none of `missing`."""

    known: Sequence[str] = ("*",)
    missing: Sequence[str] = _NOWHERE
    commands: Mapping[str, Sequence[str]] = field(
        default_factory=dict
    )  # by pattern; for pods without a command
    variables: Mapping[str, str] = field(default_factory=dict)  # variables that every image sets
    pull_seconds: float = 0.0

    def can_be_pulled(self, image: str) -> bool:
        return _matches(image, self.known) and not _matches(image, self.missing)

    def command(self, image: str) -> Sequence[str]:
        """Return the default command of an image; empty if it has none."""
        commands = (argv for pattern, argv in self.commands.items() if fnmatchcase(image, pattern))
        return next(commands, ())


def _matches(image: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(image, pattern) for pattern in patterns)


class Mounts:
    """The mounts of one container. Paths in its configuration are replaced by the real paths of its volumes."""

    def __init__(self, container: Body, volumes: Mapping[str, Path]) -> None:
        rows = container.get("volumeMounts") or []
        self._paths = {
            m["mountPath"].rstrip("/"): volumes[m["name"]] / m.get("subPath", "") for m in rows
        }
        longest_first = sorted((p for p in self._paths if p), key=len, reverse=True)
        names = "|".join(re.escape(p) for p in longest_first)
        self._pattern = re.compile(rf"(?<![\w./-])(?:{names})(?![\w.-])") if names else None

    def create_subpaths(self) -> None:
        """Create missing sub-paths as directories, as a kubelet does."""
        for path in self._paths.values():
            if not path.exists():
                path.mkdir(parents=True)

    def replace_paths(self, text: str) -> str:
        """Return a text with every mount path replaced by the real path."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: str(self._paths[found[0]]).rstrip("/"), text)


_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_][\w.-]*)\))")


def image_variables(image: Mapping[str, str], host_name: str) -> dict[str, str]:
    """Return the variables that a container has, except those that its pod sets. PATH is that of this process."""
    return {"PATH": os.environ.get("PATH", os.defpath), **image, "HOSTNAME": host_name}


def pod_variables(
    container: Body, sources: ConfigSources, known: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables that the pod sets, with unchanged mount paths. Raises MissingError."""
    made: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        for part, plural in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
            if (reference := source.get(part)) is not None:
                data = sources.data(plural, reference["name"], bool(reference.get("optional")))
                made |= {source.get("prefix", "") + k: v.decode() for k, v in data.items()}
    for row in container.get("env") or []:
        value = _value(row, container["name"], sources, {**known, **made})
        if value is not None:
            made[row["name"]] = value
    return made


def command(
    container: Body, image: Sequence[str], known: Mapping[str, str], mounts: Mounts
) -> list[str]:
    """Return the command of a container; empty if neither the pod nor the image has one."""
    start = container.get("command") or list(image)
    words = [*start, *(container.get("args") or [])]
    return [mounts.replace_paths(expand(word, known)) for word in words]


def expand(text: str, known: Mapping[str, str]) -> str:
    """Replace each `$(NAME)` of a known variable, and `$$` by a dollar."""

    def replace(reference: re.Match[str]) -> str:
        return "$" if reference[1] == "$" else known.get(reference[2], reference[0])

    return _REFERENCE.sub(replace, text)


def _value(
    row: Body, container: str, sources: ConfigSources, known: Mapping[str, str]
) -> str | None:
    source = row.get("valueFrom")
    if not source:
        return expand(str(row.get("value", "")), known)
    if "fieldRef" in source:
        return sources.field(source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        return sources.resource(source["resourceFieldRef"], container)
    part, plural = (
        ("secretKeyRef", "secrets")
        if "secretKeyRef" in source
        else ("configMapKeyRef", "configmaps")
    )
    value = sources.value(plural, source[part])
    return None if value is None else value.decode()
