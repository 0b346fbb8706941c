"""Names and labels of the objects of a run; no other module builds or parses them.

Names consist of numbers, so they are valid and unique whatever users call themselves and their tasks. The exception is
the name of a service; it is hashed if it is too long or could be mistaken for a hashed one.
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
"""Annotation of a pod: the value of `fence_after` that its agent uses, also after the setting has changed."""
HAI_TASK, HAI = "hai-task", "hai"

_IDENTIFYING = (MANAGED_BY, INSTANCE, TASK, RUN, RANK)

_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_HASHED = "x--"  # texts that begin so are always hashed
_LONGEST_NAME = 63  # of a Service


def owner_name(task_id: int, run: int) -> str:
    """Name of the ConfigMap that owns the other objects, of the Secret and of the headless Service."""
    return f"hai-{task_id}-{run}"


def pod_name(key: RankKey) -> str:
    """Name and host name of a pod."""
    return f"hai-{key}"


def service_name(run: RunRequest, service: str) -> str:
    """Name of the Service and Ingress of one service."""
    prefix = f"{owner_name(run.task_id, run.run)}-"
    return prefix + _text_or_hash(service, _DNS_LABEL, _LONGEST_NAME - len(prefix))


def label_value(text: str) -> str:
    """The text if it is a valid label value, else a hash of it."""
    return _text_or_hash(text, _LABEL_VALUE, 63)


def _text_or_hash(text: str, pattern: re.Pattern[str], longest: int) -> str:
    if len(text) <= longest and pattern.fullmatch(text) and not text.startswith(_HASHED):
        return text
    return _HASHED + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def installation_labels(settings: ClusterSettings) -> dict[str, str]:
    """The labels that all objects of this installation have."""
    return {NAME: HAI_TASK, MANAGED_BY: HAI, INSTANCE: label_value(settings.instance)}


def run_labels(
    settings: ClusterSettings, task_id: int, run: int, rank: int | None = None
) -> dict[str, str]:
    """Labels that only the objects of this run, or with `rank` of this rank, have; also among other installations."""
    labels = {**installation_labels(settings), TASK: str(task_id), RUN: str(run)}
    return labels if rank is None else {**labels, RANK: str(rank)}


def is_ours(body: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether an object has all these labels (`run_labels` of the run or the rank).

    The name is not enough: another installation in the same namespace uses the same names.
    """
    return labels.items() <= labels_of(body).items()


def identifying_labels(manifest: Manifest) -> dict[str, str]:
    """Those labels of our object that no foreign object has together."""
    return {name: value for name, value in labels_of(manifest).items() if name in _IDENTIFYING}


def labels_of(body: Mapping[str, Any]) -> Mapping[str, str]:
    return body["metadata"].get("labels") or {}


def key_of(labels: Mapping[str, str]) -> RankKey | None:
    """The rank of a pod; None if its labels are not ours."""
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
    """`metadata` of an object. `owner_uid` empty: it is the owner itself."""
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
