"""Executed notebooks of tasks that ran on a pushed workspace.

Such a task has a directory of its own on the cluster, which nobody else writes and pods see nothing beside: what it
makes stays there. A person wants to read the notebook where the original is, so it is brought there when asked for.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from hai.client.client import Client
from hai.client.errors import HaiError, NotFound
from hai.v1.task_pb2 import Task
from hai_jupyter.contents_path import ContentsPaths
from hai_jupyter.notebooks import nbformat_files, submission

_PINNED = re.compile(r"haiworkspace://([^/@]+)@(\d+)(?:/(.+))?")
_MOST_BYTES = 256 << 20


def of(task: Task) -> tuple[str, int, PurePosixPath] | None:
    """Workspace, revision and path in it of the notebook that a task makes; None when it makes none there."""
    pinned = _PINNED.fullmatch(task.spec.spec.workspace)
    out = submission.output_of(task.id, "", task.spec.spec.parameters)
    if pinned is None or out is None or out.suffix != ".ipynb":
        return None
    return pinned[1], int(pinned[2]), PurePosixPath(pinned[3] or "", out.as_posix())


async def bring(client: Client, task: Task, places: ContentsPaths) -> str:
    """Beside the original when the task is still called after it, else below the top folder. Raises NotFound."""
    there = of(task)
    if there is None:
        raise NotFound(f"task {task.id} makes no notebook in a directory of its own")
    data = await _read(client, task, *there)
    folder = _folder(task.name, places) / submission.FOLDER
    folder.mkdir(exist_ok=True)
    inside = places.directory(places.contents_path(folder))  # not one that a link has led elsewhere
    nbformat_files.replace_with(data, inside / there[2].name)
    return places.contents_path(inside / there[2].name)


async def _read(
    client: Client, task: Task, workspace: str, revision: int, path: PurePosixPath
) -> bytes:
    parts = client.workspaces.fetch(
        workspace, revision, [str(path)], compressed=False, user=task.user, task=task.id
    )
    data = bytearray()
    async for answer in parts:
        data += answer.data
        if len(data) > _MOST_BYTES:
            raise NotFound(f"the notebook of task {task.id} is larger than {_MOST_BYTES} bytes")
    return bytes(data)


def _folder(name: str, places: ContentsPaths) -> Path:
    try:
        return places.file(name).parent
    except HaiError:
        return places.root.resolve()
