"""The variables and the command of a container."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.kubelet.mounts import Mounts
from hai_backend.testing.kube.kubelet.supplies import Supplies

_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_][\w.-]*)\))")


def image_variables(image: Mapping[str, str], host_name: str) -> dict[str, str]:
    """What a container has before its pod says anything; nothing of this process but PATH."""
    return {"PATH": os.environ.get("PATH", os.defpath), **image, "HOSTNAME": host_name}


def pod_variables(container: Body, supplies: Supplies, known: Mapping[str, str]) -> dict[str, str]:
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


def _value(row: Body, container: str, supplies: Supplies, known: Mapping[str, str]) -> str | None:
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
