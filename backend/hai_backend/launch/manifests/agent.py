"""Builds the parts of a pod that install the agent.

An init container copies the agent and its configuration into directories below /hai:

/hai/agent   the agent with its own Python and C library, copied from the agent image; or a directory of the node
/hai/given   server.json and the agent.json of this rank; mounted only in the init container
/hai/home    the agent's home as on one machine: server.json and run/<rank>/agent.json, readable only by the user

The scripts are constants. They never contain a name, path or value that a user or operator chooses.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

from hai_backend.launch.base import RankKey, RankLaunch
from hai_backend.launch.manifests.checks import image_of
from hai_backend.launch.manifests.names import Manifest, owner_name
from hai_backend.launch.manifests.settings import ClusterSettings
from hai_backend.launch.request import RunRequest

AGENT_IN_IMAGE = "/opt/hai/agent"
"""The directory of the agent image that is copied to /hai/agent."""

_AGENT, _INPUT, _HOME = "/hai/agent", "/hai/given", "/hai/home"
_COPY_INPUT = "umask 077 && cp -RL /hai/given/* /hai/home/"
_COPY_AGENT = f"cp -RP {AGENT_IN_IMAGE}/. /hai/agent/ && {_COPY_INPUT}"
_CA = "ca.pem"


def server_files(settings: ClusterSettings) -> dict[str, str]:
    """Return the files, by name, that tell agents how to reach the server. They are the data of the owner."""
    fields: Manifest = {
        "address": ",".join(settings.server_addresses),
        "fence_after": settings.fence_after,
        "heartbeat": settings.agent_heartbeat,
    }
    if settings.ca_pem:
        fields["ca"] = _CA
    made = {"server.json": json.dumps(fields, sort_keys=True)}
    return {**made, _CA: settings.ca_pem} if settings.ca_pem else made


def identities(ranks: Sequence[RankLaunch]) -> dict[str, str]:
    """Return the encoded agent.json of each rank, which are the data of the Secret.

    It has no GPU indices, because the device plugin assigns GPUs.
    """
    return {_identity_key(rank.key): _encoded(_identity(rank)) for rank in ranks}


def command(key: RankKey) -> list[str]:
    """Return the command of the program's container."""
    return [f"{_AGENT}/bin/hai-agent", f"{_HOME}/run/{key}"]


def agent_volumes(run: RunRequest, key: RankKey, settings: ClusterSettings) -> list[Manifest]:
    """Return the volumes of a pod that the agent needs."""
    agent = {"hostPath": {"path": settings.agent_path, "type": "Directory"}}
    return [
        {"name": "agent", **(agent if settings.agent_path else {"emptyDir": {}})},
        {"name": "home", "emptyDir": {}},
        {"name": "given", "projected": {"sources": _input_sources(run, key, settings)}},
    ]


def agent_mounts() -> list[Manifest]:
    """Return the mounts in the program's container that the agent needs."""
    return [
        {"name": "agent", "mountPath": _AGENT, "readOnly": True},
        {"name": "home", "mountPath": _HOME},
    ]


def init_container(run: RunRequest, settings: ClusterSettings) -> Manifest:
    """Return the container that copies the agent (unless it is a directory of the node) and its configuration."""
    copies_agent = not settings.agent_path
    mounts = [
        {"name": "home", "mountPath": _HOME},
        {"name": "given", "mountPath": _INPUT, "readOnly": True},
    ]
    if copies_agent:
        mounts.insert(0, {"name": "agent", "mountPath": _AGENT})
    return {
        "name": "agent",
        "image": settings.agent_image if copies_agent else image_of(run, settings),
        "command": ["/bin/sh", "-c", _COPY_AGENT if copies_agent else _COPY_INPUT],
        "volumeMounts": mounts,
    }


def _input_sources(run: RunRequest, key: RankKey, settings: ClusterSettings) -> list[Manifest]:
    name = owner_name(run.task_id, run.run)
    files = [{"key": file, "path": file} for file in server_files(settings)]
    identity = {"key": _identity_key(key), "path": f"run/{key}/agent.json"}
    return [
        {"configMap": {"name": name, "items": files}},
        {"secret": {"name": name, "items": [identity]}},
    ]


def _identity_key(key: RankKey) -> str:
    return f"agent-{key.rank}.json"


def _identity(rank: RankLaunch) -> Manifest:
    key = rank.key
    return {
        "task_id": key.task_id,
        "run": key.run,
        "rank": key.rank,
        "node": rank.node,
        "token": rank.token,
        "leave_within": rank.run.grace_seconds,
    }


def _encoded(fields: Manifest) -> str:
    return base64.b64encode(json.dumps(fields, separators=(",", ":")).encode()).decode()
