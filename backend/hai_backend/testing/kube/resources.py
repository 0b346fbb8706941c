"""The kinds of objects of the server, as a table with one row per kind."""

from __future__ import annotations

from dataclasses import dataclass

_EVERYWHERE = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """A kind of objects, with the properties that determine how the API handles it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()  # fields for field selectors, besides name and namespace
    counted: bool = False  # objects have metadata.generation
    unconditional: bool = True  # an update needs no resourceVersion
    upsert: bool = False  # PUT creates a missing object
    returns_deleted: bool = False  # DELETE returns the object instead of a Status
    strategic: bool = True  # supports strategic merge patches
    propagation: str = "Background"
    in_all: bool = False  # `kubectl get all` shows it

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    def selectable(self) -> frozenset[str]:
        """Return the fields that a field selector may name."""
        return frozenset(_EVERYWHERE + self.fields)


_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT_FIELDS = (
    *(f"involvedObject.{f}" for f in ("kind", "namespace", "name", "uid", "apiVersion")),
    *(f"involvedObject.{f}" for f in ("resourceVersion", "fieldPath")),
    *("reason", "reportingComponent", "source", "type"),
)
_STATUS = ("status",)


def _rbac(plural: str, kind: str, namespaced: bool) -> Resource:
    return Resource("rbac.authorization.k8s.io", "v1", plural, kind, namespaced)


RESOURCES: tuple[Resource, ...] = (
    Resource(
        *("", "v1", "pods", "Pod"),
        short=("po",),
        subresources=("status", "binding", "eviction", "log"),
        fields=_POD_FIELDS,
        counted=True,
        returns_deleted=True,
        in_all=True,
    ),
    Resource(
        *("", "v1", "nodes", "Node", False),
        short=("no",),
        subresources=_STATUS,
        fields=("spec.unschedulable",),
    ),
    Resource(
        *("", "v1", "namespaces", "Namespace", False),
        short=("ns",),
        subresources=("status", "finalize"),
        fields=("status.phase",),
    ),
    Resource("", "v1", "events", "Event", short=("ev",), fields=_EVENT_FIELDS, upsert=True),
    Resource("", "v1", "secrets", "Secret", fields=("type",)),
    Resource("", "v1", "configmaps", "ConfigMap", short=("cm",)),
    Resource(
        *("", "v1", "services", "Service"),
        short=("svc",),
        subresources=_STATUS,
        fields=("spec.clusterIP", "spec.type"),
        returns_deleted=True,
        in_all=True,
    ),
    Resource(
        *("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
        short=("pvc",),
        subresources=_STATUS,
        returns_deleted=True,
    ),
    Resource("", "v1", "serviceaccounts", "ServiceAccount", short=("sa",), returns_deleted=True),
    Resource(
        *("", "v1", "resourcequotas", "ResourceQuota"),
        short=("quota",),
        subresources=_STATUS,
        returns_deleted=True,
    ),
    Resource(*("coordination.k8s.io", "v1", "leases", "Lease"), unconditional=False, upsert=True),
    Resource(
        *("apps", "v1", "daemonsets", "DaemonSet"),
        short=("ds",),
        subresources=_STATUS,
        counted=True,
        in_all=True,
    ),
    Resource(
        *("apps", "v1", "deployments", "Deployment"),
        short=("deploy",),
        subresources=_STATUS,
        counted=True,
        in_all=True,
    ),
    Resource(
        *("batch", "v1", "jobs", "Job"),
        subresources=_STATUS,
        fields=("status.successful",),
        counted=True,
        propagation="Orphan",
        in_all=True,
    ),
    Resource(
        *("networking.k8s.io", "v1", "ingresses", "Ingress"),
        short=("ing",),
        subresources=_STATUS,
        counted=True,
    ),
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", counted=True),
    Resource(
        *("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
        short=("pdb",),
        subresources=_STATUS,
        counted=True,
        unconditional=False,
    ),
    Resource(
        *("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False), short=("pc",)
    ),
    _rbac("roles", "Role", True),
    _rbac("rolebindings", "RoleBinding", True),
    _rbac("clusterroles", "ClusterRole", False),
    _rbac("clusterrolebindings", "ClusterRoleBinding", False),
)


def custom(group: str, version: str, plural: str, kind: str) -> Resource:
    """Return a namespaced custom resource with a status, as in `custom("hai.dev", "v1", "runs", "Run")`."""
    return Resource(
        *(group, version, plural, kind),
        subresources=_STATUS,
        counted=True,
        unconditional=False,
        strategic=False,
    )


class Resources:
    """Finds resources by group, version and plural, or by plural alone."""

    def __init__(self, more: tuple[Resource, ...] = ()) -> None:
        self.all = (*RESOURCES, *more)
        self._by_path = {(r.group, r.version, r.plural): r for r in self.all}
        self._by_plural = {r.plural: r for r in self.all}

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_path.get((group, version, plural))

    def __getitem__(self, plural: str) -> Resource:
        return self._by_plural[plural]

    def groups(self) -> dict[str, set[str]]:
        """Return the named groups and their versions."""
        groups: dict[str, set[str]] = {}
        for resource in self.all:
            if resource.group:
                groups.setdefault(resource.group, set()).add(resource.version)
        return groups
