"""Builds the network objects of a run: DNS names of ranks, node ports, ingress paths, and the network policy.

An Ingress requires no login. So http services have one only if the operators allow access without a login. Otherwise,
browsers use the server's proxy, which requires a login. The path is /USER/TASK/SERVICE, where TASK is the task's id, so
it stays the same in all runs of the task.

The network policy admits connections from pods of the same user, so that ranks can reach each other, and connections
from everywhere to published ports. Servers never connect to pods; agents connect to servers. Outgoing connections are
not limited. The policy requires a network plugin that implements NetworkPolicy, and does not apply to pods with the
right `host_network`.
"""

from __future__ import annotations

from collections.abc import Iterator

from hai_backend.domain.spec import ServiceType
from hai_backend.launch.manifests.names import (
    USER,
    Manifest,
    installation_labels,
    label_value,
    metadata,
    owner_name,
    run_labels,
    service_name,
)
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RunRequest, ServiceRequest

_NGINX = "nginx.ingress.kubernetes.io"
_LONGEST_SECONDS = "604800"  # a week, for idle connections of notebooks


def headless_service(run: RunRequest, settings: ClusterSettings, owner_uid: str) -> Manifest:
    """Return the Service that gives each rank a DNS name, even before all ranks are ready."""
    name = owner_name(run.task_id, run.run)
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": run_labels(settings, run.task_id, run.run),
    }
    return _service(name, run, settings, owner_uid, spec)


def published_services(
    run: RunRequest, settings: ClusterSettings, owner_uid: str
) -> Iterator[Manifest]:
    """Yield the Services and Ingresses of rank 0."""
    for service in run.services:
        if not is_published(service, settings):
            continue
        name = service_name(run, service.name)
        yield _service(name, run, settings, owner_uid, _rank_0_spec(run, settings, service))
        if service.type is ServiceType.HTTP:
            yield _ingress(name, run, settings, owner_uid, service)


def network_policy(
    run: RunRequest, settings: ClusterSettings, owner_uid: str
) -> Iterator[Manifest]:
    """Yield the NetworkPolicy of a run; nothing if `separate_users` is off."""
    if not settings.separate_users:
        return
    same_user = {
        "podSelector": {
            "matchLabels": {**installation_labels(settings), USER: label_value(run.user)}
        }
    }
    ports = [{"port": s.port, "protocol": "TCP"} for s in run.services if is_published(s, settings)]
    yield {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(owner_name(run.task_id, run.run), run, settings, owner_uid=owner_uid),
        "spec": {
            "podSelector": {"matchLabels": run_labels(settings, run.task_id, run.run)},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [same_user]}, *([{"ports": ports}] if ports else [])],
        },
    }


def is_published(service: ServiceRequest, settings: ClusterSettings) -> bool:
    """Return whether the service can be reached from outside the cluster without the server's proxy."""
    http = service.type is ServiceType.HTTP and bool(settings.ingress_hosts)
    return http or service.type is ServiceType.TCP


def http_path(run: RunRequest, service: str) -> str:
    """Return the path of an http service on each ingress host."""
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


def _rank_0_spec(run: RunRequest, settings: ClusterSettings, service: ServiceRequest) -> Manifest:
    port: Manifest = {"name": service.type.value, "port": service.port, "targetPort": service.port}
    if service.node_port:
        port["nodePort"] = service.node_port
    return {
        "type": "NodePort" if service.type is ServiceType.TCP else "ClusterIP",
        "selector": run_labels(settings, run.task_id, run.run, 0),
        "ports": [port],
    }


def _ingress(
    name: str,
    run: RunRequest,
    settings: ClusterSettings,
    owner_uid: str,
    service: ServiceRequest,
) -> Manifest:
    meta = metadata(name, run, settings, owner_uid=owner_uid)
    meta["annotations"] = _annotations(rewrite=service.rewrite_uri)
    spec: Manifest = {"rules": [_rule(name, host, run, service) for host in settings.ingress_hosts]}
    if settings.ingress_class:
        spec["ingressClassName"] = settings.ingress_class
    if settings.ingress_tls_secret:
        hosts = list(settings.ingress_hosts)
        spec["tls"] = [{"hosts": hosts, "secretName": settings.ingress_tls_secret}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": meta,
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
    """Return annotations for ingress-nginx. Other controllers ignore them, and so keep the prefix of the path."""
    made = {
        f"{_NGINX}/proxy-read-timeout": _LONGEST_SECONDS,
        f"{_NGINX}/proxy-send-timeout": _LONGEST_SECONDS,
    }
    if rewrite:
        made |= {f"{_NGINX}/use-regex": "true", f"{_NGINX}/rewrite-target": "/$2"}
    return made
