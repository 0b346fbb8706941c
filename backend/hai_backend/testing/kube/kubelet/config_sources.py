"""Looks up the objects to which the configuration of a pod refers: Secrets, ConfigMaps, claims, and pod fields."""

from __future__ import annotations

import base64
import re
from typing import Any

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, dig, quantity
from hai_backend.testing.kube.kubelet.pod_state import LocalPod

_KEYED = re.compile(r"(metadata\.(?:labels|annotations))\['(.+)'\]$")
_KINDS = {"secrets": "secret", "configmaps": "configmap"}
Data = dict[str, bytes]


class MissingError(Exception):
    """An object or file that a pod refers to does not exist yet. The message is that of a real kubelet."""


class ConfigSources:
    """Looks up the references of one pod."""

    def __init__(self, api: Api, local: LocalPod) -> None:
        self._api = api
        self._local = local
        self._namespace = local.pod.namespace

    def data(self, plural: str, name: str, optional: bool = False) -> Data:
        """Return the data of a Secret or ConfigMap. Raises MissingError."""
        found = self._api.get(plural, self._namespace, name)
        if found is None and not optional:
            raise MissingError(f'{_KINDS[plural]} "{name}" not found')
        body = found.body if found is not None else {}
        plain = body.get("data") or {}
        if plural == "secrets":
            return {k: base64.b64decode(v) for k, v in plain.items()}
        binary = {k: base64.b64decode(v) for k, v in (body.get("binaryData") or {}).items()}
        return {k: v.encode() for k, v in plain.items()} | binary

    def value(self, plural: str, reference: Body) -> bytes | None:
        """Return one value of a Secret or ConfigMap; None if it is optional and missing. Raises MissingError."""
        name, optional = reference["name"], bool(reference.get("optional"))
        data = self.data(plural, name, optional)
        if reference["key"] not in data and not optional:
            kind = _KINDS[plural].capitalize()
            raise MissingError(
                f"couldn't find key {reference['key']} in {kind} {self._namespace}/{name}"
            )
        return data.get(reference["key"])

    def claim_uid(self, name: str) -> str:
        """Return the uid of a PersistentVolumeClaim. Raises MissingError."""
        found = self._api.get("persistentvolumeclaims", self._namespace, name)
        if found is None:
            raise MissingError(f'persistentvolumeclaim "{name}" not found')
        return found.uid

    def field(self, path: str) -> str:
        """Return a field of the pod as the downward API does."""
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
        """Return a request or limit of a container in units of the divisor, rounded up."""
        name = reference.get("containerName") or container
        rows = self._local.containers
        spec = next((c.spec for c in rows if c.name == name), {})
        part, _, which = reference["resource"].partition(".")
        value = quantity(dig(spec, f"resources.{part}", {}).get(which, 0))
        divisor = quantity(reference.get("divisor") or 1) or 1
        return str(-(-value // divisor))
