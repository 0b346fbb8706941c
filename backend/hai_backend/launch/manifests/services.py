"""Ways into a run: names of its ranks, ports of nodes for tcp services, paths of the ingress for http services.

Nothing here asks who one is. Browsers come through the servers' proxy, which does; http services have an ingress only
where operators want them open to all. Its path is /USER/TASK/SERVICE, with the task's number: it stays the same over
suspensions.
"""

from __future__ import annotations

from collections.abc import Iterator

from hai_backend.domain.spec import ServiceType
from hai_backend.launch.manifests.names import (
    Manifest,
    label_value,
    metadata,
    own_labels,
    owner_name,
    service_name,
)
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RunRequest, ServiceRequest

_NGINX = "nginx.ingress.kubernetes.io"
_LONGEST_SECONDS = "604800"  # of a silent connection: notebooks are left open over weekends


def headless(run: RunRequest, settings: ClusterSettings, owner_uid: str) -> Manifest:
    """Gives each rank a name, also before all of them are ready."""
    name = owner_name(run.task_id, run.run)
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": own_labels(settings, run.task_id, run.run),
    }
    return _service(name, run, settings, owner_uid, spec)


def published(run: RunRequest, settings: ClusterSettings, owner_uid: str) -> Iterator[Manifest]:
    """Services and ingresses of rank 0."""
    for service in run.services:
        if not is_published(service, settings):
            continue
        name = service_name(run, service.name)
        yield _service(name, run, settings, owner_uid, _to_rank_0(run, settings, service))
        if service.type is ServiceType.HTTP:
            yield _ingress(name, run, settings, owner_uid, service)


def is_published(service: ServiceRequest, settings: ClusterSettings) -> bool:
    """Whether the cluster shows it to others."""
    http = service.type is ServiceType.HTTP and bool(settings.ingress_hosts)
    return http or service.type is ServiceType.TCP


def http_path(run: RunRequest, service: str) -> str:
    """Where a http service is found below each ingress host."""
    label = service_name(run, service).removeprefix(f"{owner_name(run.task_id, run.run)}-")
    return f"/{label_value(run.user)}/{run.task_id}/{label}"


def _service(
    name: str, run: RunRequest, settings: ClusterSettings, owner_uid: str, spec: Manifest
) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(name, run, settings, owner_uid=owner_uid),
        "spec": spec,
    }


def _to_rank_0(run: RunRequest, settings: ClusterSettings, service: ServiceRequest) -> Manifest:
    port: Manifest = {"name": service.type.value, "port": service.port, "targetPort": service.port}
    if service.node_port:
        port["nodePort"] = service.node_port
    return {
        "type": "NodePort" if service.type is ServiceType.TCP else "ClusterIP",
        "selector": own_labels(settings, run.task_id, run.run, 0),
        "ports": [port],
    }


def _ingress(
    name: str,
    run: RunRequest,
    settings: ClusterSettings,
    owner_uid: str,
    service: ServiceRequest,
) -> Manifest:
    about = metadata(name, run, settings, owner_uid=owner_uid)
    about["annotations"] = _annotations(rewrite=service.rewrite_uri)
    spec: Manifest = {"rules": [_rule(name, host, run, service) for host in settings.ingress_hosts]}
    if settings.ingress_class:
        spec["ingressClassName"] = settings.ingress_class
    if settings.ingress_tls_secret:
        hosts = list(settings.ingress_hosts)
        spec["tls"] = [{"hosts": hosts, "secretName": settings.ingress_tls_secret}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": about,
        "spec": spec,
    }


def _rule(name: str, host: str, run: RunRequest, service: ServiceRequest) -> Manifest:
    path = http_path(run, service.name)
    backend = {"service": {"name": name, "port": {"name": service.type.value}}}
    rewritten = {"path": f"{path}(/|$)(.*)", "pathType": "ImplementationSpecific"}
    plain = {"path": path, "pathType": "Prefix"}
    paths = [{**(rewritten if service.rewrite_uri else plain), "backend": backend}]
    return {"host": host, "http": {"paths": paths}}


def _annotations(*, rewrite: bool) -> dict[str, str]:
    """For ingress-nginx; other controllers pass over them, and then take no prefix off the path."""
    made = {
        f"{_NGINX}/proxy-read-timeout": _LONGEST_SECONDS,
        f"{_NGINX}/proxy-send-timeout": _LONGEST_SECONDS,
    }
    if rewrite:
        made |= {f"{_NGINX}/use-regex": "true", f"{_NGINX}/rewrite-target": "/$2"}
    return made
