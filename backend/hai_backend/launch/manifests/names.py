"""Names and labels of everything that belongs to a run; the only place that makes or reads them.

Names are made of numbers, so they are valid and unique whatever users call themselves and their tasks. The one word
of a user among them is a service's name; it is hashed when it is too long or could be mistaken for a hashed one.
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
FENCE_AFTER = "hai.dev/fence-after"
"""Annotation of a pod: `fence_after` as its agent knows it, whatever the setting becomes."""
HAI_TASK, HAI = "hai-task", "hai"

_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_HASHED = "x--"  # no value that is kept begins so
_LONGEST_NAME = 63  # of a Service


def owner_name(task_id: int, run: int) -> str:
    """The ConfigMap that owns all others; the Secret and the headless Service are called alike."""
    return f"hai-{task_id}-{run}"


def pod_name(key: RankKey) -> str:
    """Also the pod's host name."""
    return f"hai-{key}"


def service_name(run: RunRequest, service: str) -> str:
    """The Service and Ingress of one service."""
    prefix = f"{owner_name(run.task_id, run.run)}-"
    return prefix + _fitting(service, _DNS_LABEL, _LONGEST_NAME - len(prefix))


def label_value(text: str) -> str:
    """The text where Kubernetes takes it, else a hash of it."""
    return _fitting(text, _LABEL_VALUE, 63)


def _fitting(text: str, pattern: re.Pattern[str], most: int) -> str:
    if len(text) <= most and pattern.fullmatch(text) and not text.startswith(_HASHED):
        return text
    return _HASHED + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def selector(settings: ClusterSettings) -> dict[str, str]:
    """Labels by which everything of this installation is found."""
    return {NAME: HAI_TASK, MANAGED_BY: HAI, INSTANCE: label_value(settings.instance)}


def own_labels(
    settings: ClusterSettings, task_id: int, run: int, rank: int | None = None
) -> dict[str, str]:
    """Labels that tell a run's objects, or with `rank` that rank's, from all others, also of other installations."""
    labels = {**selector(settings), TASK: str(task_id), RUN: str(run)}
    return labels if rank is None else {**labels, RANK: str(rank)}


def key_of(labels: Mapping[str, str]) -> RankKey | None:
    """The rank that a pod is; None when its labels are not ours."""
    words = [labels.get(name, "") for name in (TASK, RUN, RANK)]
    if not all(word.isascii() and word.isdecimal() for word in words):
        return None
    return RankKey(*(int(word) for word in words))


def metadata(
    name: str,
    run: RunRequest,
    settings: ClusterSettings,
    *,
    owner_uid: str,
    rank: int | None = None,
) -> Manifest:
    """Name, place, labels and owner. No `owner_uid`: the owner itself."""
    made: Manifest = {
        "name": name,
        "namespace": settings.namespace,
        "labels": {
            **settings.labels,
            **own_labels(settings, run.task_id, run.run, rank),
            USER: label_value(run.user),
        },
    }
    if owner_uid:
        made["ownerReferences"] = [_owner_reference(run, owner_uid)]
    return made


def _owner_reference(run: RunRequest, uid: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner_name(run.task_id, run.run),
        "uid": uid,
        "controller": True,
    }
