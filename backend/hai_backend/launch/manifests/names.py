"""The names and labels of the objects of a run. No other module builds or parses them.

Names are built from numbers, so they are valid and unique for all names of users and tasks. Only names of services
contain text from a user. Such a text is replaced by a hash if it is not valid, is too long, or looks like a hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from hai_backend.launch.base import RankKey
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RunRequest

Manifest = dict[str, Any]

TASK, RUN, RANK, USER = "hai.dev/task", "hai.dev/run", "hai.dev/rank", "hai.dev/user"
NAME, MANAGED_BY = "app.kubernetes.io/name", "app.kubernetes.io/managed-by"
INSTANCE = "app.kubernetes.io/instance"
CONTAINER = "task"
"""Name of the container of the program in the pod of a rank."""
FENCE_AFTER = "hai.dev/fence-after"
"""Annotation of a pod: the value of `fence_after` that its agent uses, also after the setting has changed."""
HAI_TASK, HAI, CHECKPOINT_WRITER = "hai-task", "hai", "hai-checkpoint-writer"

_IDENTIFYING = (MANAGED_BY, INSTANCE, TASK, RUN, RANK)

_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_HASHED = "x--"  # the prefix of hashes; texts that begin with it are hashed, too
_LONGEST_NAME = 63  # the limit for a Service


def owner_name(task_id: int, run: int) -> str:
    """Return the name of the owner (a ConfigMap), and of the run's Secret, headless Service and NetworkPolicy."""
    return f"hai-{task_id}-{run}"


def pod_name(key: RankKey) -> str:
    """Return the name of a pod, which is also its host name."""
    return f"hai-{key}"


def writer_name(key: RankKey) -> str:
    """Return the name of the pod that writes the checkpoints of a rank."""
    return f"hai-{key}-writer"


def service_name(run: RunRequest, service: str) -> str:
    """Return the name of the Service and the Ingress of one service of a task."""
    prefix = f"{owner_name(run.task_id, run.run)}-"
    return prefix + _text_or_hash(service, _DNS_LABEL, _LONGEST_NAME - len(prefix))


def label_value(text: str) -> str:
    """Return the text if it is a valid label value, else a hash of it."""
    return _text_or_hash(text, _LABEL_VALUE, 63)


def _text_or_hash(text: str, pattern: re.Pattern[str], longest: int) -> str:
    if len(text) <= longest and pattern.fullmatch(text) and not text.startswith(_HASHED):
        return text
    return _HASHED + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def installation_labels(settings: ClusterSettings) -> dict[str, str]:
    """Return the labels that all objects of this installation have."""
    return {NAME: HAI_TASK, MANAGED_BY: HAI, INSTANCE: label_value(settings.instance)}


def run_labels(
    settings: ClusterSettings, task_id: int, run: int, rank: int | None = None
) -> dict[str, str]:
    """Return the labels of the objects of a run, or of one rank. No other object in the cluster has all of them."""
    labels = {**installation_labels(settings), TASK: str(task_id), RUN: str(run)}
    return labels if rank is None else {**labels, RANK: str(rank)}


def is_ours(body: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether an object has all these labels, which are the `run_labels` of the run or the rank.

    Comparing names is not enough, because another installation in the same namespace uses the same names.
    """
    return labels.items() <= labels_of(body).items()


def identifying_labels(manifest: Manifest) -> dict[str, str]:
    """Return the labels of an object that distinguish it from the objects of other runs and installations."""
    return {name: value for name, value in labels_of(manifest).items() if name in _IDENTIFYING}


def labels_of(body: Mapping[str, Any]) -> Mapping[str, str]:
    return body["metadata"].get("labels") or {}


def key_of(labels: Mapping[str, str]) -> RankKey | None:
    """Return the rank of a pod; None if the pod does not have the labels of a rank."""
    numbers = [labels.get(name, "") for name in (TASK, RUN, RANK)]
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        return None
    return RankKey(*(int(number) for number in numbers))


def metadata(
    name: str,
    run: RunRequest,
    settings: ClusterSettings,
    *,
    owner_uid: str,
    rank: int | None = None,
) -> Manifest:
    """Return the `metadata` of an object. `owner_uid` is empty for the owner itself."""
    result: Manifest = {
        "name": name,
        "namespace": settings.namespace,
        "labels": {
            **settings.labels,
            **run_labels(settings, run.task_id, run.run, rank),
            USER: label_value(run.user),
        },
    }
    if owner_uid:
        result["ownerReferences"] = [_owner_reference(run, owner_uid)]
    return result


def _owner_reference(run: RunRequest, uid: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner_name(run.task_id, run.run),
        "uid": uid,
        "controller": True,
    }
