"""Downloads executed notebooks of tasks that ran on a pushed workspace.

Such a task writes into a private directory on the cluster. The user wants to read the notebook beside the original, so
it is downloaded there on request.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from hai.client.client import Client
from hai.client.errors import HaiError, NotFound
from hai.v1.task_pb2 import Task
from hai_jupyter.contents_path import ContentsPaths
from hai_jupyter.notebooks import nbformat_files, submission

_WORKSPACE_REVISION = re.compile(r"haiworkspace://([^/@]+)@(\d+)(?:/(.+))?")
_MAX_BYTES = 256 << 20


def find_notebook(task: Task) -> tuple[str, int, PurePosixPath] | None:
    """Return workspace, revision and path of the notebook that a task writes; None if it writes none."""
    match = _WORKSPACE_REVISION.fullmatch(task.spec.spec.workspace)
    out = submission.output_of(task.id, "", task.spec.spec.parameters)
    if match is None or out is None or out.suffix != ".ipynb":
        return None
    return match[1], int(match[2]), PurePosixPath(match[3] or "", out.as_posix())


async def download(client: Client, task: Task, contents_paths: ContentsPaths) -> str:
    """Save the notebook next to its original, or below the root if the original is unknown. Raises NotFound."""
    notebook = find_notebook(task)
    if notebook is None:
        raise NotFound(f"task {task.id} makes no notebook in a directory of its own")
    data = await _read(client, task, *notebook)
    folder = _folder(task.name, contents_paths) / submission.FOLDER
    folder.mkdir(exist_ok=True)
    # `directory` raises if the folder is a link that leads outside the root.
    target = contents_paths.directory(contents_paths.contents_path(folder)) / notebook[2].name
    nbformat_files.replace_file(data, target)
    return contents_paths.contents_path(target)


async def _read(
    client: Client, task: Task, workspace: str, revision: int, path: PurePosixPath
) -> bytes:
    parts = client.workspaces.fetch(
        workspace, revision, [str(path)], compressed=False, user=task.user, task=task.id
    )
    data = bytearray()
    async for answer in parts:
        data += answer.data
        if len(data) > _MAX_BYTES:
            raise NotFound(f"the notebook of task {task.id} is larger than {_MAX_BYTES} bytes")
    return bytes(data)


def _folder(name: str, contents_paths: ContentsPaths) -> Path:
    try:
        return contents_paths.file(name).parent
    except HaiError:
        return contents_paths.root.resolve()
