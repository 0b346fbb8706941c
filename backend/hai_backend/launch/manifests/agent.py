"""How the agent comes into a pod: an init container brings it, and what it must know, to places below /hai.

/hai/agent   the agent with its own Python and C library: copied from the agent image, or a directory of the node
/hai/given   only in the init container: server.json and this rank's agent.json, and no other rank's
/hai/home    the agent's home, as on a laptop: server.json and run/<rank>/agent.json, readable by the user alone

The scripts are constants: no name, path or value of anybody is ever part of them.
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
"""Where the agent image has what becomes /hai/agent."""

_AGENT, _GIVEN, _HOME = "/hai/agent", "/hai/given", "/hai/home"
_PREPARE = "umask 077 && cp -RL /hai/given/* /hai/home/"
_BRING = f"cp -RP {AGENT_IN_IMAGE}/. /hai/agent/ && {_PREPARE}"
_CA = "ca.pem"


def server_files(settings: ClusterSettings) -> dict[str, str]:
    """What agents must know of the server: data of the owner."""
    facts: Manifest = {
        "address": ",".join(settings.server_addresses),
        "fence_after": settings.fence_after,
        "heartbeat": settings.agent_heartbeat,
    }
    if settings.ca_pem:
        facts["ca"] = _CA
    made = {"server.json": json.dumps(facts, sort_keys=True)}
    return {**made, _CA: settings.ca_pem} if settings.ca_pem else made


def identities(ranks: Sequence[RankLaunch]) -> dict[str, str]:
    """agent.json of each rank: data of the Secret. Which GPUs a rank has is the device plugin's to say."""
    return {_identity_key(rank.key): _encoded(_identity(rank)) for rank in ranks}


def command(key: RankKey) -> list[str]:
    """What the program's container runs."""
    return [f"{_AGENT}/bin/hai-agent", f"{_HOME}/run/{key}"]


def agent_volumes(run: RunRequest, key: RankKey, settings: ClusterSettings) -> list[Manifest]:
    """Volumes of the pod."""
    agent = {"hostPath": {"path": settings.agent_path, "type": "Directory"}}
    return [
        {"name": "agent", **(agent if settings.agent_path else {"emptyDir": {}})},
        {"name": "home", "emptyDir": {}},
        {"name": "given", "projected": {"sources": _given(run, key, settings)}},
    ]


def agent_mounts() -> list[Manifest]:
    """Mounts of the program's container."""
    return [
        {"name": "agent", "mountPath": _AGENT, "readOnly": True},
        {"name": "home", "mountPath": _HOME},
    ]


def init_container(run: RunRequest, settings: ClusterSettings) -> Manifest:
    """Brings the agent; with a directory of the node, only what the agent must know."""
    brings = not settings.agent_path
    mounts = [
        {"name": "home", "mountPath": _HOME},
        {"name": "given", "mountPath": _GIVEN, "readOnly": True},
    ]
    if brings:
        mounts.insert(0, {"name": "agent", "mountPath": _AGENT})
    return {
        "name": "agent",
        "image": settings.agent_image if brings else image_of(run, settings),
        "command": ["/bin/sh", "-c", _BRING if brings else _PREPARE],
        "volumeMounts": mounts,
    }


def _given(run: RunRequest, key: RankKey, settings: ClusterSettings) -> list[Manifest]:
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


def _encoded(facts: Manifest) -> str:
    return base64.b64encode(json.dumps(facts, separators=(",", ":")).encode()).decode()
