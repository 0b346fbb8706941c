"""What people may be allowed beyond their role. A right is a word, some with an argument: `image:registry/team/`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from hai_backend.domain.catalog import capability


class Right(StrEnum):
    """Everything that can be granted. Operators have what concerns tasks, nodes, storage; admins all of it."""

    ASSIGN_NODES = "assign_nodes"  # tasks on nodes by name
    MANAGE_TASKS = "manage_tasks"  # see and steer everybody's tasks
    MANAGE_NODES = "manage_nodes"  # cordon, drain, label, policies of groups
    MANAGE_USERS = "manage_users"  # accounts that can do no more than the holder
    MANAGE_QUOTAS = "manage_quotas"  # quotas and shares
    MANAGE_TOKENS = "manage_tokens"  # tokens for accounts that can do no more than the holder
    MANAGE_STORAGE = "manage_storage"  # mounts
    MANAGE_IMAGES = "manage_images"  # built-in images and registries
    CUSTOM_SERVICE = "custom_service"  # custom_service:http:8080, …:tcp:*: services of tasks
    IMAGE = "image"  # image:registry/team/: images whose reference begins so
    CAP = "cap"  # cap:IPC_LOCK: a Linux capability of the own containers
    GID = "gid"  # gid:2000: a Unix group of the own programs
    PRIVILEGED = "privileged"
    HOST_IPC = "host_ipc"
    HOST_PID = "host_pid"
    HOST_NETWORK = "host_network"
    PORTS = "ports"  # ports:4: so many node ports
    WORKSPACE_GB = "workspace_gb"  # workspace_gb:500: so many GB in the own workspaces


_ARGUMENTS = {
    Right.CUSTOM_SERVICE: (r"(http|tcp|local):(\*|[0-9]{1,5})", "custom_service:http:8080"),
    Right.IMAGE: (r"[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9._/-]*)?", "image:registry/team/"),
    Right.CAP: (r".+", "cap:IPC_LOCK"),
    Right.GID: (r"[1-9][0-9]{0,9}", "gid:2000"),
    Right.PORTS: (r"[0-9]{1,4}", "ports:4"),
    Right.WORKSPACE_GB: (r"[0-9]{1,7}", "workspace_gb:500"),
}


@dataclass(frozen=True, slots=True)
class Grant:
    """A right of a user, or of every member of a user group."""

    subject: str
    subject_is_group: bool
    right: str
    expires_at: float | None = None


def fault(text: str) -> str:
    """Why `text` is no right; empty when it is one."""
    name, colon, argument = text.partition(":")
    if name not in set(Right):
        return f"there is no right {name[:40]!r}; there are {', '.join(Right)}"
    pattern, example = _ARGUMENTS.get(Right(name), ("", ""))
    if not pattern and colon:
        return f"{name} takes no argument"
    if pattern and not re.fullmatch(pattern, argument):
        return f"{text[:60]!r} must look like {example}"
    return capability.fault(argument) if name == Right.CAP else ""
