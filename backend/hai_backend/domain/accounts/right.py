"""Permissions beyond the role of a user. A right is a keyword, sometimes with an argument: `image:registry/team/`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum


class Right(StrEnum):
    """All rights. Operators have the rights for tasks, nodes, storage and images; admins have all rights."""

    ASSIGN_NODES = "assign_nodes"  # run tasks on nodes that the task names
    MANAGE_TASKS = "manage_tasks"  # see and change the tasks of all users
    MANAGE_NODES = "manage_nodes"  # cordon, drain and label nodes; set policies of groups
    MANAGE_USERS = "manage_users"  # manage accounts that have no more rights than the holder
    MANAGE_QUOTAS = "manage_quotas"  # quotas and shares
    MANAGE_TOKENS = (
        "manage_tokens"  # create tokens for accounts that have no more rights than the holder
    )
    MANAGE_STORAGE = "manage_storage"  # mounts
    MANAGE_IMAGES = "manage_images"  # built-in images and registries
    CUSTOM_SERVICE = (
        "custom_service"  # services of tasks: custom_service:http:8080, custom_service:tcp:*
    )
    IMAGE = "image"  # images whose reference begins with a prefix: image:registry/team/
    CAP = "cap"  # a Linux capability of the user's containers: cap:IPC_LOCK
    GID = "gid"  # a Unix group of the user's programs: gid:2000
    PRIVILEGED = "privileged"
    HOST_IPC = "host_ipc"
    HOST_PID = "host_pid"
    HOST_NETWORK = "host_network"
    PORTS = "ports"  # the number of node ports of the user: ports:4
    WORKSPACE_GB = "workspace_gb"  # the GB of the user's workspaces: workspace_gb:500


_ARGUMENTS = {
    Right.CUSTOM_SERVICE: (r"(http|tcp|local):(\*|[0-9]{1,5})", "custom_service:http:8080"),
    Right.IMAGE: (r"[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9._/-]*)?", "image:registry/team/"),
    Right.CAP: (r".+", "cap:IPC_LOCK"),
    Right.GID: (r"[1-9][0-9]{0,9}", "gid:2000"),
    Right.PORTS: (r"[0-9]{1,4}", "ports:4"),
    Right.WORKSPACE_GB: (r"[0-9]{1,7}", "workspace_gb:500"),
}

_CAPABILITIES = """
AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE CHOWN DAC_OVERRIDE
DAC_READ_SEARCH FOWNER FSETID IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN
MAC_OVERRIDE MKNOD NET_ADMIN NET_BIND_SERVICE NET_BROADCAST NET_RAW PERFMON SETFCAP SETGID
SETPCAP SETUID SYSLOG SYS_ADMIN SYS_BOOT SYS_CHROOT SYS_MODULE SYS_NICE SYS_PACCT SYS_PTRACE
SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG WAKE_ALARM
"""
CAPABILITIES = frozenset(_CAPABILITIES.split())
"""The capabilities of Linux (capabilities(7)), without CAP_."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A right of a user, or of every member of a user group."""

    subject: str
    subject_is_group: bool
    right: str
    expires_at: float | None = None


def right_problem(text: str) -> str:
    """Say why `text` is not a right; return an empty text if it is one."""
    name, colon, argument = text.partition(":")
    if name not in set(Right):
        return f"there is no right {name[:40]!r}; there are {', '.join(Right)}"
    pattern, example = _ARGUMENTS.get(Right(name), ("", ""))
    if not pattern and colon:
        return f"{name} takes no argument"
    if pattern and not re.fullmatch(pattern, argument):
        return f"{text[:60]!r} must look like {example}"
    return capability_problem(argument) if name == Right.CAP else ""


def capability_problem(name: str) -> str:
    """Say why `name` is not a capability; return an empty text if it is one."""
    if name in CAPABILITIES:
        return ""
    similar = get_close_matches(name.upper().removeprefix("CAP_"), sorted(CAPABILITIES), n=3)
    hint = f"; did you mean {' or '.join(similar)}?" if similar else ", as IPC_LOCK is"
    return f"{name[:40]!r} is no capability of Linux{hint}"
