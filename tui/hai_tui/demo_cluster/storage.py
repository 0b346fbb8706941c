"""Records of environments and workspaces in the demo cluster, which has no real storage."""

from __future__ import annotations

import hashlib

from hai.client.fake.workspaces import ROOT
from hai.client.fake.world import World
from hai.v1.environment_pb2 import (
    ENVIRONMENT_STATE_BROKEN,
    ENVIRONMENT_STATE_READY,
    Environment,
    EnvironmentVisibility,
)
from hai.v1.task_pb2 import TASK_STATE_FINISHED
from hai.v1.workspace_pb2 import Workspace
from hai_tui.demo_cluster.records import TREES, VENVS, Tree, Venv

_OWNER = "alice"


def stock(world: World) -> None:
    """Add the records."""
    for venv in VENVS:
        world.environments[venv.owner, venv.name] = _environment(venv, world)
    for tree in TREES:
        world.workspaces[_OWNER, tree.name] = _workspace(tree, world)


def _environment(venv: Venv, world: World) -> Environment:
    """Return the record of an environment. The server cannot read the files of a broken one, so fields are empty."""
    environment = Environment(
        name=venv.name,
        owner=venv.owner,
        path=f"{ROOT}/{venv.owner}/{venv.name}",
        visibility=EnvironmentVisibility.Value(f"ENVIRONMENT_VISIBILITY_{venv.visibility.upper()}"),
        user_group=venv.group,
        state=ENVIRONMENT_STATE_BROKEN if venv.broken else ENVIRONMENT_STATE_READY,
        message=venv.broken,
        description=venv.description,
        deprecated=venv.deprecated,
        create_time=world.time(),
        update_time=world.time(),
        used_by=_task_ids(venv, world),
    )
    if not venv.broken:
        environment.MergeFrom(_layer_fields(venv))
    return environment


def _layer_fields(venv: Venv) -> Environment:
    lock = hashlib.sha256(venv.lock.encode()).hexdigest()
    return Environment(
        parent=venv.parent,
        python_version=venv.python,
        lock_hash=lock,
        layer=lock[:24],
        packages=venv.packages,
        size_bytes=venv.size_bytes,
    )


def _task_ids(venv: Venv, world: World) -> list[int]:
    reference = f"{venv.name}[{venv.owner}]"
    tasks = [t for t in world.tasks.values() if t.state != TASK_STATE_FINISHED]
    return [t.id for t in tasks if t.spec.options.py_venv == reference]


def _workspace(tree: Tree, world: World) -> Workspace:
    """Return the record of a workspace of which all revisions are retained."""
    size = tree.files * tree.bytes_each
    workspace = Workspace(
        name=tree.name,
        user=_OWNER,
        path=f"/workspaces/{_OWNER}/{tree.name}",
        revision=tree.revisions,
        files=tree.files,
        size_bytes=size,
        stored_bytes=size + tree.bytes_each * max(0, tree.revisions - 1),
        create_time=world.time(),
    )
    if tree.revisions:
        workspace.update_time.CopyFrom(world.time())
    if tree.holder:
        workspace.lease.holder = tree.holder
        workspace.lease.revision = tree.revisions
    return workspace
