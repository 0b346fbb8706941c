"""The namespace controller."""

from __future__ import annotations

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.body import Body, dig
from hai_backend.testing.kube.storage.store import Change


class NamespaceController:
    """Creates the default objects of a new namespace, and deletes all objects of a deleted one."""

    def __init__(self, api: Api) -> None:
        self._api = api
        for resource in api.resources.all:
            if resource.namespaced:
                api.store.listen(resource, self._on_content_change)
        api.store.listen(api.resources["namespaces"], self._on_namespace_change)

    def _on_namespace_change(self, change: Change) -> None:
        name = change.stored.name
        if change.type == "ADDED" and self._api.latest(change.stored) is not None:
            self.create_defaults(name)
        elif change.type == "MODIFIED" and change.stored.deleting:
            for resource in self._api.resources.all:
                if resource.namespaced:
                    self._delete_all(resource.plural, name)
            self._finalize(name)

    def create_defaults(self, name: str) -> None:
        """Create the default service account, and the ConfigMap with the certificate of the cluster."""
        for plural, object_name in (
            ("serviceaccounts", "default"),
            ("configmaps", "kube-root-ca.crt"),
        ):
            namespace = self._api.get("namespaces", "", name)
            if namespace is None or namespace.deleting or self._api.get(plural, name, object_name):
                continue
            body: Body = {"metadata": {"name": object_name}}
            if plural == "configmaps":
                body["data"] = {"ca.crt": ""}
            self._api.writes.create(self._api.resources[plural], name, body)

    def _delete_all(self, plural: str, namespace: str) -> None:
        for stored in self._api.store.sorted_objects(self._api.resources[plural]):
            if stored.namespace == namespace and not stored.deleting:
                self._api.deletes.delete_if_current(stored)

    def _on_content_change(self, change: Change) -> None:
        if change.type == "DELETED":
            self._finalize(change.stored.namespace)

    def _finalize(self, name: str) -> None:
        namespace = self._api.get("namespaces", "", name)
        if namespace is None or not namespace.deleting or self._api.store.count_by_namespace[name]:
            return
        if not dig(namespace.body, "metadata.finalizers"):
            self._api.store.remove(namespace, namespace.body)
