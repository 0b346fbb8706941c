"""The last validation of a run before its objects are created.

The rules protect the cluster. Most of them are also checked when a task is submitted, with better messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hai_backend.domain.accounts.right import capability_problem
from hai_backend.domain.catalog.image import parse_image
from hai_backend.domain.errors import Invalid, Violation
from hai_backend.domain.mounts.mount import Mount, MountKind
from hai_backend.domain.mounts.paths import check_path, check_relative_path, check_target
from hai_backend.domain.mounts.sources import check_source
from hai_backend.domain.mounts.variables import Problem
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RankResources, RunRequest

_OBJECT = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_MIG = re.compile(r"[1-9]g\.[1-9][0-9]{0,3}gb(?:\.[a-z]{1,8}){0,2}")
_MAX_ID = 2**31 - 1


def validate(run: RunRequest, settings: ClusterSettings) -> None:
    """Check a run against all rules. Raises Invalid with all violations."""
    violations = (
        *_user_violations(run, settings),
        *_pod_violations(run, settings),
        *_mount_violations(run, settings),
    )
    if violations:
        raise Invalid(violations, reason="BAD_LAUNCH")


def user_id(run: RunRequest, settings: ClusterSettings) -> int:
    """Return the uid of the run's programs; 0 if neither the user nor the settings have one."""
    return run.uid or settings.default_uid


def image_of(run: RunRequest, settings: ClusterSettings) -> str:
    """Return the image reference of a run. Raises ValueError if the image is unknown or its reference is not valid."""
    if run.image in settings.images:
        return settings.images[run.image]
    if "/" not in run.image:
        available = ", ".join(sorted(settings.images)) or "none"
        message = f"there is no image {run.image[:64]!r}; there are {available}"
        raise ValueError(f"{message}; for others write registry/name:tag")
    return str(parse_image(run.image))


def _user_violations(run: RunRequest, settings: ClusterSettings) -> Iterator[Violation]:
    if not 0 < user_id(run, settings) <= _MAX_ID:
        message = "has no uid, and programs never run as root: an admin must set one"
        yield Violation("user.uid", f"{run.user[:64]} {message}")
    if not 0 <= run.gid <= _MAX_ID:
        yield Violation("user.gid", f"{run.gid} is no group id")
    for gid in run.groups:
        if not 0 < gid <= _MAX_ID:
            yield Violation("user.rights", f"{gid} is no group that a user may be in")
    for name in run.capabilities:
        if problem_text := capability_problem(name):
            yield Violation("user.rights", problem_text)
    if run.capabilities and settings.agent_path:
        message = "capabilities come with kubernetes.agent_image, and this cluster has agent_path: take the right cap:"
        yield Violation("user.rights", f"{message}{run.capabilities[0][:64]} back")


def _pod_violations(run: RunRequest, settings: ClusterSettings) -> Iterator[Violation]:
    try:
        image_of(run, settings)
    except ValueError as error:
        yield Violation("resource.image", str(error))
    if run.pull_secret and not _OBJECT.fullmatch(run.pull_secret):
        yield Violation("resource.image", f"{run.pull_secret[:64]!r} is no name of a pull secret")
    for each in set(run.resources):
        yield from _resource_violations(each)
    names = [service.name for service in run.services]
    if len(set(names)) < len(names):
        yield Violation("services", "two of them have one name")
    for service in run.services:
        if not (0 < service.port < 65536 and 0 <= service.node_port < 65536):
            yield Violation("services", f"{service.name[:64]!r}: a port is from 1 to 65535")


def _resource_violations(each: RankResources) -> Iterator[Violation]:
    if each.mig and not _MIG.fullmatch(each.mig):
        yield Violation("resource.gpu", f"{each.mig[:64]!r} is no profile, as 1g.10gb is")
    if min(each.gpus, each.cpus, each.memory_bytes, each.rdma) < 0:
        yield Violation("resource", "asks for less than nothing")


def _mount_violations(run: RunRequest, settings: ClusterSettings) -> Iterator[Violation]:
    paths = [m.mount_path for m in run.mounts]
    paths += [f"{settings.shared_path}/{d.below}" for d in run.shared]
    if len(set(paths)) < len(paths):
        yield Violation("mounts", "two of them have one mount path")
    for mount in run.mounts:
        try:
            _check_mount(mount)
        except Problem as problem:
            yield Violation(f"mounts[{mount.mount_path[:64]}]", str(problem))
    for directory in run.shared:
        try:
            check_relative_path(directory.below)
        except Problem as problem:
            yield Violation(f"shared[{directory.below[:64]}]", str(problem))


def _check_mount(mount: Mount) -> None:
    check_target(check_path(mount.mount_path), shared_memory=mount.kind is MountKind.TMPFS)
    check_source(mount.kind, mount.source)
