"""What pods need besides themselves: Secrets, ConfigMaps, fields of the pod; and what is said when one is missing."""

from __future__ import annotations

import base64
import re
from typing import Any

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, dig
from hai_backend.testing.kube.kubelet.pod_state import LocalPod
from hai_backend.testing.kube.quantities import quantity

_KEYED = re.compile(r"(metadata\.(?:labels|annotations))\['(.+)'\]$")
_KINDS = {"secrets": "secret", "configmaps": "configmap"}
Data = dict[str, bytes]


class MissingError(Exception):
    """Something that a pod refers to is not there (yet)."""


class ConfigSources:
    """Looks things up for the pods of one namespace."""

    def __init__(self, api: Api, local: LocalPod) -> None:
        self._api = api
        self._local = local
        self._namespace = local.pod.namespace

    def data(self, plural: str, name: str, optional: bool = False) -> Data:
        """The contents of a Secret or ConfigMap. Raises MissingError."""
        found = self._api.get(plural, self._namespace, name)
        if found is None and not optional:
            raise MissingError(f'{_KINDS[plural]} "{name}" not found')
        body = found.body if found is not None else {}
        plain = body.get("data") or {}
        if plural == "secrets":
            return {k: base64.b64decode(v) for k, v in plain.items()}
        binary = {k: base64.b64decode(v) for k, v in (body.get("binaryData") or {}).items()}
        return {k: v.encode() for k, v in plain.items()} | binary

    def key(self, plural: str, reference: Body) -> bytes | None:
        """One value; None when it is missing and optional. Raises MissingError."""
        name, optional = reference["name"], bool(reference.get("optional"))
        data = self.data(plural, name, optional)
        if reference["key"] not in data and not optional:
            kind = _KINDS[plural].capitalize()
            raise MissingError(
                f"couldn't find key {reference['key']} in {kind} {self._namespace}/{name}"
            )
        return data.get(reference["key"])

    def claim(self, name: str) -> str:
        """The uid of a claim. Raises MissingError."""
        found = self._api.get("persistentvolumeclaims", self._namespace, name)
        if found is None:
            raise MissingError(f'persistentvolumeclaim "{name}" not found')
        return found.uid

    def field(self, path: str) -> str:
        """A field of the pod, as the downward API says it."""
        pod = self._api.latest(self._local.pod) or self._local.pod
        status = {"podIP": self._local.ip, "podIPs": self._local.ip, "hostIP": "127.0.0.1"}
        body: Body = {**pod.body, "status": {**pod.body["status"], **status}}
        if keyed := _KEYED.match(path):
            return str(dig(body, keyed[1], {}).get(keyed[2], ""))
        value: Any = dig(body, path, "")
        if isinstance(value, dict):
            return "".join(f'{k}="{v}"\n' for k, v in sorted(value.items()))
        return str(value)

    def resource(self, reference: Body, container: str) -> str:
        """A request or limit, whole and rounded up."""
        name = reference.get("containerName") or container
        rows = self._local.containers
        spec = next((c.spec for c in rows if c.name == name), {})
        part, _, which = reference["resource"].partition(".")
        value = quantity(dig(spec, f"resources.{part}", {}).get(which, 0))
        divisor = quantity(reference.get("divisor") or 1) or 1
        return str(-(-value // divisor))
