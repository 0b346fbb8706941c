"""Makes the task spec of a submission: from a file, a notebook or some of its cells, and the form."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hai.client.client import Client
from hai.client.errors import HaiError
from hai.client.taskfile.spec import read_spec
from hai.client.taskfile.writer import to_mapping
from hai.client.tasks.filters import quote
from hai.v1.task_spec_pb2 import TaskSpec
from hai_jupyter.contents_path import ContentsPaths
from hai_jupyter.errors import invalid
from hai_jupyter.notebooks import submission

_DRAFT_NAMESPACE = uuid.UUID("5bb5a3b8-8d6a-4f4c-9f0f-2f1f8f1f7a01")
_TASK_FILES = (".yml", ".yaml")


@dataclass(frozen=True, slots=True)
class Source:
    """What the page submits: a file, or cells of a notebook. `form` has the structure of a task file."""

    path: str
    cells: tuple[str, ...] | None
    parameters: Mapping[str, str]
    form: Mapping[str, Any]


def read_source(data: Mapping[str, Any]) -> Source:
    """Validate a request of the page; report all faults at once."""
    cells, parameters = data.get("cells"), data.get("parameters") or {}
    faults = []
    if not isinstance(data.get("path"), str) or not data["path"]:
        faults.append(("path", "must be the path of a file"))
    if cells is not None and not _texts(cells):
        faults.append(("cells", "must be a list of texts"))
    if not isinstance(parameters, dict) or not _texts([*parameters, *parameters.values()]):
        faults.append(("parameters", "must be names with texts"))
    if not isinstance(data.get("form", {}), dict):
        faults.append(("form", "must be a task file as an object"))
    if faults:
        raise invalid(*faults)
    selected = None if cells is None else tuple(cells)
    return Source(data["path"], selected, parameters, data.get("form", {}))


def compose(source: Source, contents_paths: ContentsPaths, python: str, *, write: bool) -> TaskSpec:
    """Return the spec of a submission; with `write`, make the copy of a notebook."""
    path = contents_paths.file(source.path)
    if (file_spec := read_task_file(path)) is not None:
        return read_spec(_merge(to_mapping(file_spec), source.form), rules=False)
    if path.suffix == ".ipynb":
        copy = submission.copy_notebook(path, source.cells, write=write)
        base = notebook_task(default_name(source), copy, path.parent, python, source.parameters)
    else:
        base = _new_task(default_name(source), _program(source, path))
    return read_spec(_merge(base, source.form), rules=False)


def notebook_task(
    name: str, copy: Path, workspace: Path, python: str, parameters: Mapping[str, str]
) -> dict[str, Any]:
    """Return a task file that executes a notebook. A suspend sends it a signal and leaves time for the running cell."""
    program = {
        "workspace": str(workspace),
        "entrypoint": python,
        "entrypoint_executable": True,
        "parameters": submission.runner_arguments(copy, workspace, parameters),
    }
    return {**_new_task(name, program), "options": {"suspend_signal": "SIGTERM", "save_within": 10}}


def read_task_file(path: Path) -> TaskSpec | None:
    """Return the spec of a task file; None for another kind of file. Raises Invalid if the file is invalid."""
    return read_spec(path, rules=False) if path.suffix in _TASK_FILES else None


def default_name(source: Source) -> str:
    """Return the default name of a task: its path, which is unique on this server."""
    name = source.path.replace("(", "_").replace(")", "_")
    return f"{name} [cells]" if source.cells is not None else name


async def draft_word(client: Client, name: str) -> str:
    """Return an identifier of the next submission of this name: the same in every tab until one tab has submitted."""
    page = await client.tasks.list(filter=f"user:me name:{quote(name)}", page_size=20)
    last = max((task.id for task in page.tasks if task.name == name), default=0)
    return str(uuid.uuid5(_DRAFT_NAMESPACE, f"{name}\n{last}"))


async def last_spec(client: Client, name: str) -> TaskSpec | None:
    """Return the spec of the last task with this name, or None."""
    page = await client.tasks.list(filter=f"user:me name:{quote(name)}", page_size=20)
    ids = [task.id for task in page.tasks if task.name == name]
    if not ids:
        return None
    spec = (await client.tasks.get(max(ids))).spec
    spec.options.ClearField("after")  # the dependencies belong to the last task only
    return spec


async def runner_python(client: Client) -> str:
    """Return the Python that executes notebooks: this one if tasks run on this machine, else that of the image."""
    try:
        info = await client.server.info()
    except HaiError:
        return "python3"
    return sys.executable if info.launcher == "process" else "python3"


def _new_task(name: str, program: Mapping[str, Any]) -> dict[str, Any]:
    return {"version": 2, "name": name, "spec": program, "resource": {"node_count": 1}}


def _program(source: Source, path: Path) -> dict[str, Any]:
    options = [f"--{key}={value}" for key, value in source.parameters.items()]
    program = {"workspace": str(path.parent), "entrypoint": path.name, "parameters": options}
    if path.suffix in (".py", ".sh"):
        return program
    if not os.access(path, os.X_OK):
        raise invalid(
            ("path", f"{source.path} is no .py, .sh, .ipynb or .yml file, and not executable")
        )
    return {**program, "entrypoint": f"./{path.name}", "entrypoint_executable": True}


def _merge(base: Mapping[str, Any], form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the base with the values of the form, at every level; null removes a value."""
    result = dict(base)
    for key, value in form.items():
        if isinstance(value, dict):
            inner = result.get(key)
            result[key] = _merge(inner if isinstance(inner, dict) else {}, value)
        else:
            result[key] = value
    return {key: value for key, value in result.items() if value is not None}


def _texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
