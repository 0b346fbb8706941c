"""Rules for where a task runs: image, group and zone, number of nodes, parts of nodes."""

from __future__ import annotations

from hai.v1 import task_spec_pb2 as pb
from hai_backend.domain.image import parse_image
from hai_backend.domain.spec import ResourceSpec, TaskType
from hai_backend.services import limits
from hai_backend.services.rules import NAME, Rules, nearest
from hai_backend.services.validate_fit import SubmitContext

_NAME_RULE = "at most 63 letters, digits, `.`, `_`, `-`, beginning with a letter or digit"


def resource(
    spec: pb.TaskSpec, task_type: TaskType, context: SubmitContext, rules: Rules
) -> ResourceSpec:
    """resource.*"""
    asked = spec.resource
    group, zone = _place(asked.group, context, rules)
    image = asked.image or "default"
    _image(image, rules)
    if asked.is_spot and task_type is not TaskType.JUPYTER:
        rules.add("resource.is_spot", "is for dev containers only (task_type jupyter)")
    return ResourceSpec(
        image=image,
        group=group,
        zone=zone,
        node_count=_node_count(spec, rules),
        is_spot=asked.is_spot,
        gpu=rules.number("resource.gpu", asked.gpu, 0, limits.GPUS),
        cpu=rules.number("resource.cpu", asked.cpu, 0, limits.CPUS),
        memory=rules.number("resource.memory", asked.memory, 0, limits.MEMORY_GB),
    )


def _image(image: str, rules: Rules) -> None:
    """A name, or with a slash a reference; it goes into pods as it is."""
    if "/" not in image and len(image) <= limits.IMAGE_CHARS:
        rules.matching(
            "resource.image", image, NAME, f"an image name ({_NAME_RULE}), or a registry path"
        )
        return
    try:
        parse_image(image)
    except ValueError as error:
        rules.add("resource.image", str(error))


def _node_count(spec: pb.TaskSpec, rules: Rules) -> int:
    if spec.resource.HasField("node_count"):
        asked = rules.number("resource.node_count", spec.resource.node_count, 1, limits.NODES)
        return max(1, asked)  # so that a wrong number is one violation, not several
    return max(1, sum(role.count for role in spec.roles))


def _place(text: str, context: SubmitContext, rules: Rules) -> tuple[str, str]:
    """`group#zone` in two."""
    group, hash_sign, zone = text.partition("#")
    if hash_sign and not (group and zone):
        rules.add("resource.group", "must be a group, or group#zone")
    group = group or "default"
    if zone and not NAME.fullmatch(zone):
        rules.add("resource.group", f"the zone must be {_NAME_RULE}")
    elif group not in context.capacity:
        _unknown_group(group, context, rules)
    elif zone and zone not in context.capacity[group].zones:
        known = ", ".join(sorted(context.capacity[group].zones)) or "none"
        rules.add(
            "resource.group", f"group {group} has no zone {zone!r}; it has {known}", "NO_SUCH_GROUP"
        )
    return group, zone


def _unknown_group(group: str, context: SubmitContext, rules: Rules) -> None:
    known = sorted(context.capacity)
    some = ", ".join(known[:20]) or "none yet"
    message = f"there is no group {group[:64]!r}; there are {some}{nearest(group, known)}"
    rules.add("resource.group", message, "NO_SUCH_GROUP")
