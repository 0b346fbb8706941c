"""From what is on the screen to a task spec: a file, a notebook or some of its cells, and what the form says."""

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

_SPACE = uuid.UUID("5bb5a3b8-8d6a-4f4c-9f0f-2f1f8f1f7a01")
_TASK_FILES = (".yml", ".yaml")


@dataclass(frozen=True, slots=True)
class Source:
    """What the page wants to run: a file, or cells of a notebook; `form` is shaped like the task file."""

    path: str
    cells: tuple[str, ...] | None
    parameters: Mapping[str, str]
    form: Mapping[str, Any]


def read_source(data: Mapping[str, Any]) -> Source:
    """What the page sent, with every mistake named at once."""
    cells, parameters = data.get("cells"), data.get("parameters") or {}
    wrong = []
    if not isinstance(data.get("path"), str) or not data["path"]:
        wrong.append(("path", "must be the path of a file"))
    if cells is not None and not _texts(cells):
        wrong.append(("cells", "must be a list of texts"))
    if not isinstance(parameters, dict) or not _texts([*parameters, *parameters.values()]):
        wrong.append(("parameters", "must be names with texts"))
    if not isinstance(data.get("form", {}), dict):
        wrong.append(("form", "must be a task file as an object"))
    if wrong:
        raise invalid(*wrong)
    chosen = None if cells is None else tuple(cells)
    return Source(data["path"], chosen, parameters, data.get("form", {}))


def compose(source: Source, places: ContentsPaths, python: str, *, write: bool) -> TaskSpec:
    """The spec of it. Only with `write` is the copy of a notebook made."""
    path = places.file(source.path)
    if (said := task_file(path)) is not None:
        return read_spec(_merged(to_mapping(said), source.form), rules=False)
    if path.suffix == ".ipynb":
        copy = submission.copy_of(path, source.cells, write=write)
        base = notebook_task(default_name(source), copy, path.parent, python, source.parameters)
    else:
        base = _task(default_name(source), _program(source, path))
    return read_spec(_merged(base, source.form), rules=False)


def notebook_task(
    name: str, copy: Path, workspace: Path, python: str, parameters: Mapping[str, str]
) -> dict[str, Any]:
    """A task file that executes a notebook. It is told of a suspend by a signal, and gets time for the running cell."""
    program = {
        "workspace": str(workspace),
        "entrypoint": python,
        "entrypoint_executable": True,
        "parameters": submission.arguments(copy, workspace, parameters),
    }
    return {**_task(name, program), "options": {"suspend_signal": "SIGTERM", "save_within": 10}}


def task_file(path: Path) -> TaskSpec | None:
    """What a task file says; None: it is something else. Raises Invalid where it cannot be read."""
    return read_spec(path, rules=False) if path.suffix in _TASK_FILES else None


def default_name(source: Source) -> str:
    """The name of a task when nobody gives one: the path, which is unique in this server."""
    name = source.path.replace("(", "_").replace(")", "_")
    return f"{name} [cells]" if source.cells is not None else name


async def draft(client: Client, name: str) -> str:
    """One word for "the next submission of this": the same in every tab until one of them has submitted."""
    page = await client.tasks.list(filter=f"user:me name:{quote(name)}", page_size=20)
    last = max((task.id for task in page.tasks if task.name == name), default=0)
    return str(uuid.uuid5(_SPACE, f"{name}\n{last}"))


async def last_spec(client: Client, name: str) -> TaskSpec | None:
    """How the task of that name was submitted last time."""
    page = await client.tasks.list(filter=f"user:me name:{quote(name)}", page_size=20)
    ids = [task.id for task in page.tasks if task.name == name]
    if not ids:
        return None
    spec = (await client.tasks.get(max(ids))).spec
    spec.options.ClearField("after")  # those were to go before that one
    return spec


async def runner_python(client: Client) -> str:
    """The interpreter that executes notebooks: ours, where tasks run on this machine; else the image's."""
    try:
        info = await client.server.info()
    except HaiError:
        return "python3"
    return sys.executable if info.launcher == "process" else "python3"


def _task(name: str, program: Mapping[str, Any]) -> dict[str, Any]:
    return {"version": 2, "name": name, "spec": program, "resource": {"node_count": 1}}


def _program(source: Source, path: Path) -> dict[str, Any]:
    given = [f"--{key}={value}" for key, value in source.parameters.items()]
    program = {"workspace": str(path.parent), "entrypoint": path.name, "parameters": given}
    if path.suffix in (".py", ".sh"):
        return program
    if not os.access(path, os.X_OK):
        raise invalid(
            ("path", f"{source.path} is no .py, .sh, .ipynb or .yml file, and not executable")
        )
    return {**program, "entrypoint": f"./{path.name}", "entrypoint_executable": True}


def _merged(base: Mapping[str, Any], form: Mapping[str, Any]) -> dict[str, Any]:
    """The form's values in place of the base's, part by part; null in place of a value leaves it out."""
    result = dict(base)
    for key, value in form.items():
        inner = result.get(key)
        inside = inner if isinstance(inner, dict) else {}
        result[key] = _merged(inside, value) if isinstance(value, dict) else value
    return {key: value for key, value in result.items() if value is not None}


def _texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
