"""The variables and the command of a container."""

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
    """Patterns of names. What is missing wins; names below .invalid are always missing."""

    known: Sequence[str] = ("*",)
    missing: Sequence[str] = _NOWHERE
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)  # where a pod says none
    variables: Mapping[str, str] = field(default_factory=dict)  # of every image
    pull_seconds: float = 0.0

    def pullable(self, image: str) -> bool:
        return _any(image, self.known) and not _any(image, self.missing)

    def command(self, image: str) -> Sequence[str]:
        """What the image runs by itself; empty when nothing is known of it."""
        found = (argv for pattern, argv in self.commands.items() if fnmatchcase(image, pattern))
        return next(found, ())


def _any(image: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(image, pattern) for pattern in patterns)


class Mounts:
    """What one container sees where."""

    def __init__(self, container: Body, volumes: Mapping[str, Path]) -> None:
        rows = container.get("volumeMounts") or []
        self._paths = {
            m["mountPath"].rstrip("/"): volumes[m["name"]] / m.get("subPath", "") for m in rows
        }
        longest_first = sorted((p for p in self._paths if p), key=len, reverse=True)
        names = "|".join(re.escape(p) for p in longest_first)
        self._pattern = re.compile(rf"(?<![\w./-])(?:{names})(?![\w.-])") if names else None

    def make(self) -> None:
        """Sub-paths that are not there yet become directories, as a kubelet does it."""
        for path in self._paths.values():
            if not path.exists():
                path.mkdir(parents=True)

    def real(self, text: str) -> str:
        """The text with every mount path replaced."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: str(self._paths[found[0]]).rstrip("/"), text)

    def real_all(self, texts: Sequence[str]) -> list[str]:
        return [self.real(text) for text in texts]


_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_][\w.-]*)\))")


def image_variables(image: Mapping[str, str], host_name: str) -> dict[str, str]:
    """What a container has before its pod says anything; nothing of this process but PATH."""
    return {"PATH": os.environ.get("PATH", os.defpath), **image, "HOSTNAME": host_name}


def pod_variables(
    container: Body, supplies: ConfigSources, known: Mapping[str, str]
) -> dict[str, str]:
    """What the pod says, with mount paths as they stand there. Raises MissingError."""
    made: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        for part, plural in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
            if (reference := source.get(part)) is not None:
                data = supplies.data(plural, reference["name"], bool(reference.get("optional")))
                made |= {source.get("prefix", "") + k: v.decode() for k, v in data.items()}
    for row in container.get("env") or []:
        value = _value(row, container["name"], supplies, {**known, **made})
        if value is not None:
            made[row["name"]] = value
    return made


def command(
    container: Body, image: Sequence[str], known: Mapping[str, str], mounts: Mounts
) -> list[str]:
    """What is run; empty when neither pod nor image says it."""
    start = container.get("command") or list(image)
    return mounts.real_all(
        [expand(word, known) for word in [*start, *(container.get("args") or [])]]
    )


def expand(text: str, known: Mapping[str, str]) -> str:
    """`$(NAME)` is replaced where NAME is known, `$$` is a dollar."""

    def one(found: re.Match[str]) -> str:
        return "$" if found[1] == "$" else known.get(found[2], found[0])

    return _REFERENCE.sub(one, text)


def _value(
    row: Body, container: str, supplies: ConfigSources, known: Mapping[str, str]
) -> str | None:
    source = row.get("valueFrom")
    if not source:
        return expand(str(row.get("value", "")), known)
    if "fieldRef" in source:
        return supplies.field(source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        return supplies.resource(source["resourceFieldRef"], container)
    part, plural = (
        ("secretKeyRef", "secrets")
        if "secretKeyRef" in source
        else ("configMapKeyRef", "configmaps")
    )
    found = supplies.key(plural, source[part])
    return None if found is None else found.decode()
