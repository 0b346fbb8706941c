"""Whose an object is. Names are made of numbers, so another installation in the same namespace has the same ones."""

from __future__ import annotations

from collections.abc import Mapping

from hai_backend.launch.kubernetes.errors import Taken
from hai_backend.launch.manifests.names import HAI, INSTANCE, MANAGED_BY, RANK, RUN, TASK, Manifest
from hai_backend.watch.source import Body

_TELLING = (MANAGED_BY, INSTANCE, TASK, RUN, RANK)


def is_ours(body: Body, labels: Mapping[str, str]) -> bool:
    """Whether an object has all these labels: own_labels of the run, or of the rank."""
    return labels.items() <= _labels(body).items()


def telling(manifest: Manifest) -> dict[str, str]:
    """Of the labels of something that we make, those that nobody else's has together."""
    return {name: value for name, value in _labels(manifest).items() if name in _TELLING}


def taken(manifest: Manifest, found: Body | None = None) -> Taken:
    """The error that says whose an object is that has the name of ours. None: nobody may look."""
    what = f"{manifest['kind']} {manifest['metadata']['name']}"
    return Taken(
        f"the namespace {manifest['metadata']['namespace']} has a {what} already, {_whose(found)}: let each"
        " installation have a namespace of its own (setting kubernetes.namespace), or delete what is not needed"
    )


def _whose(found: Body | None) -> str:
    labels = _labels(found) if found is not None else {}
    if labels.get(MANAGED_BY) == HAI and INSTANCE in labels:
        return f"of the installation {labels[INSTANCE]}"
    return "which is not of this installation"


def _labels(body: Body) -> Mapping[str, str]:
    return body["metadata"].get("labels") or {}
