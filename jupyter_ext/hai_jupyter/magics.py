"""Magics of `%load_ext hai_jupyter`: submit a cell or a file, show tasks and their logs.

A kernel runs its own event loop, so each magic connects to the server in a thread with another loop.
"""

# mypy: disable-error-code="no-untyped-call,untyped-decorator"
# IPython's decorators have no annotations

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

from IPython.core.error import UsageError as MagicError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from hai.client.client import Client
from hai.client.errors import HaiError, explain_error
from hai.client.profile import load
from hai.client.taskfile.spec import apply_option, read_spec
from hai.v1.task_pb2 import Task
from hai.v1.task_spec_pb2 import AfterSpec, TaskSpec
from hai_jupyter.contents_path import ContentsPaths
from hai_jupyter.notebooks import nbformat_files, submission
from hai_jupyter.submission import Source, compose, notebook_task, runner_python
from hai_jupyter.task_view import TaskList, TaskView

Result = TypeVar("Result")
_OUTCOMES = ("succeeded", "failed", "ended")


def _submit_options(magic: Any) -> Any:
    """Add the options that every submission has."""
    for each in (
        argument(
            *("-a", "--after"),
            action="append",
            default=[],
            help="A task that goes first: 12, fit, fit:ended",
        ),
        argument("-o", "--option", action="append", default=[], help="A field: options.py_venv=b"),
        argument("-g", "--group", default="", help="Node group."),
        argument("-p", "--priority", type=int, default=None, help="A level's number."),
        argument("-n", "--nodes", type=int, default=None, help="Whole nodes; default: one."),
        magic_arguments(),
    ):
        magic = each(magic)
    return magic


@magics_class
class HaiMagics(Magics):
    """The `hai_` magics."""

    @_submit_options
    @argument("name", nargs="?", default="", help="Name of the task; default: of the first line.")
    @cell_magic
    def hai_job(self, line: str, cell: str) -> TaskView:
        """Submit this cell as a task. It runs in this directory, by itself: nothing of the kernel goes with it."""
        arguments = parse_argstring(self.hai_job, line)
        return _view(_run_with_client(lambda client: _submit_cell(client, arguments, cell)))

    @_submit_options
    @argument("file", help="A script, a notebook, a program or a task file.")
    @argument("--name", default="", help="Name of the task; default: the file's.")
    @argument("-v", "--value", action="append", default=[], help="A parameter: rate=0.1")
    @line_magic
    def hai_submit(self, line: str) -> TaskView:
        """Submit a file as the panel would; it runs in the file's directory."""
        arguments = parse_argstring(self.hai_submit, line)
        file = Path(arguments.file).absolute()
        return _view(_run_with_client(lambda client: _submit_file(client, arguments, file)))

    @magic_arguments()
    @argument("task", nargs="?", default="", help="Id or name; without: the newest of yours.")
    @line_magic
    def hai_status(self, line: str) -> TaskView | TaskList:
        """Show a task, live; without a name the newest ten of yours."""
        ref = parse_argstring(self.hai_status, line).task
        if ref:
            return TaskView(_run_with_client(lambda client: _get_task(client, ref)))
        return TaskList(_run_with_client(_newest_tasks))

    @magic_arguments()
    @argument("task", help="Id or name.")
    @argument("-n", "--lines", type=int, default=50, help="Last lines of each rank; 0: all.")
    @argument("-r", "--rank", type=int, action="append", default=[], help="Only this rank.")
    @line_magic
    def hai_logs(self, line: str) -> None:
        """Print the last lines of a task."""
        arguments = parse_argstring(self.hai_logs, line)
        for text in _run_with_client(
            lambda client: _log_lines(client, arguments.task, arguments.rank, arguments.lines)
        ):
            print(text)


def _run_with_client(call: Callable[[Client], Coroutine[Any, Any, Result]]) -> Result:
    """Run a call in a new thread; raise failures as messages without a traceback."""
    results: list[Result | BaseException] = []

    async def work() -> Result:
        async with Client(load()) as client:
            return await call(client)

    def run() -> None:
        try:
            results.append(asyncio.run(work()))
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    [result] = results
    if isinstance(result, Exception):
        explained = explain_error(result)
        if isinstance(explained, HaiError):
            raise MagicError(
                f"{explained.message}{f' ({explained.hint})' if explained.hint else ''}"
            )
    if isinstance(result, BaseException):
        raise result
    return result


def _view(task: Task) -> TaskView:
    """Return the view of a submitted task, after the warnings of the server."""
    for warning in task.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return TaskView(task)


async def _submit_file(client: Client, arguments: Any, file: Path) -> Task:
    values = dict(value.partition("=")[::2] for value in arguments.value)
    source = Source(file.name, None, values, {"name": arguments.name} if arguments.name else {})
    spec = compose(source, ContentsPaths(file.parent), await runner_python(client), write=True)
    return await _create(client, spec, arguments)


async def _submit_cell(client: Client, arguments: Any, cell: str) -> Task:
    directory = Path.cwd()
    name = arguments.name or _default_name(cell)
    text = nbformat_files.to_text(
        nbformat_files.new_notebook([nbformat_files.code_cell(cell, id="cell-0")], {})
    )
    copy = submission.store_copy(text, directory, "cell", write=True)
    base = notebook_task(name, copy, directory, await runner_python(client), {})
    return await _create(client, read_spec(base, rules=False), arguments)


async def _create(client: Client, spec: TaskSpec, arguments: Any) -> Task:
    _apply_options(spec, arguments)
    spec.options.after.extend([await _dependency(client, each) for each in arguments.after])
    return await client.tasks.create(spec)


async def _dependency(client: Client, reference: str) -> AfterSpec:
    """Parse 12, fit or fit:ended. A name may contain a colon."""
    task, _, outcome = reference.rpartition(":")
    if outcome not in _OUTCOMES:
        task, outcome = reference, ""
    return AfterSpec(task=await client.tasks.resolve(task), outcome=outcome)


def _apply_options(spec: TaskSpec, arguments: Any) -> None:
    """Set the options of the magic, which override the file."""
    if arguments.nodes is not None:
        spec.resource.node_count = arguments.nodes
    if arguments.group:
        spec.resource.group = arguments.group
    if arguments.priority is not None:
        spec.priority = arguments.priority
    for assignment in arguments.option:
        apply_option(spec, assignment)


def _default_name(cell: str) -> str:
    first = next((line.strip("# ") for line in cell.splitlines() if line.strip("# ")), "cell")
    return "".join(c if c not in "()" else "_" for c in first)[:40]


async def _get_task(client: Client, ref: str) -> Task:
    return await client.tasks.get(await client.tasks.resolve(ref))


async def _newest_tasks(client: Client) -> list[Task]:
    return list((await client.tasks.list(filter="user:me", page_size=10)).tasks)


async def _log_lines(client: Client, ref: str, ranks: list[int], last: int) -> list[str]:
    id = await client.tasks.resolve(ref)
    lines = []
    async with aclosing(client.logs.tail(id, ranks=ranks, tail_lines=last)) as answers:
        async for answer in answers:
            lines += [f"[{line.rank}] {line.text}" for line in answer.lines]
    return lines
