"""What nobody may change in a pod."""

from __future__ import annotations

from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.errors import Cause


def forbidden_change(old: Body, new: Body) -> list[Cause]:
    """A pod's spec is settled, but for images, tolerations that are added, and deadlines."""
    if _settled(old) == _settled(new) and _only_added(old, new):
        return []
    message = (
        "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
        "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
        "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be "
        "set to 1 if it was previously negative)"
    )
    return [Cause("spec", "FieldValueForbidden", message)]


def _settled(spec: Body) -> Body:
    made = {k: v for k, v in spec.items() if k not in ("tolerations", "activeDeadlineSeconds")}
    for part in ("containers", "initContainers"):
        if part in made:
            made[part] = [{**c, "image": ""} for c in made[part]]
    return {k: v for k, v in made.items() if v}


def _only_added(old: Body, new: Body) -> bool:
    kept = new.get("tolerations") or []
    return all(toleration in kept for toleration in old.get("tolerations") or [])
