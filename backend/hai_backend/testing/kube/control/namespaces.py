"""The namespace controller: what a new namespace always has, and how one that is deleted is emptied."""

from __future__ import annotations

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, dig
from hai_backend.testing.kube.storage.store import Change


class NamespaceController:
    """Gives a new namespace what it always has, and empties one that is deleted."""

    def __init__(self, api: Api) -> None:
        self._api = api
        for resource in api.resources.all:
            if resource.namespaced:
                api.store.listen(resource, self._hear_content)
        api.store.listen(api.resources["namespaces"], self._hear)

    def _hear(self, change: Change) -> None:
        name = change.stored.name
        if change.type == "ADDED" and self._api.latest(change.stored) is not None:
            self.furnish(name)
        elif change.type == "MODIFIED" and change.stored.deleting:
            for resource in self._api.resources.all:
                if resource.namespaced:
                    self._empty(resource.plural, name)
            self._finish(name)

    def furnish(self, name: str) -> None:
        """The default service account, and the configmap of the cluster's certificate."""
        for plural, which in (("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")):
            namespace = self._api.get("namespaces", "", name)
            if namespace is None or namespace.deleting or self._api.get(plural, name, which):
                continue
            body: Body = {"metadata": {"name": which}}
            if plural == "configmaps":
                body["data"] = {"ca.crt": ""}
            self._api.writes.create(self._api.resources[plural], name, body)

    def _empty(self, plural: str, namespace: str) -> None:
        for stored in self._api.store.everything(self._api.resources[plural]):
            if stored.namespace == namespace and not stored.deleting:
                self._api.deletes.end(stored)

    def _hear_content(self, change: Change) -> None:
        if change.type == "DELETED":
            self._finish(change.stored.namespace)

    def _finish(self, name: str) -> None:
        namespace = self._api.get("namespaces", "", name)
        if namespace is None or not namespace.deleting or self._api.store.in_namespace[name]:
            return
        if not dig(namespace.body, "metadata.finalizers"):
            self._api.store.remove(namespace, namespace.body)
