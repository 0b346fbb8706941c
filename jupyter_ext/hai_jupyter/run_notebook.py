"""`python -m hai_jupyter.run_notebook IN OUT -p name=value`: execute a notebook as a task does, without a browser.

OUT is written anew after each cell, so what ran before an end of any kind is kept; `{task}` in its name is the task's
number. Values of -p are read as yaml and stand in a cell after the one tagged `parameters` (before all without one).
What cells print also goes to the log.

When the platform suspends the task, the notebook is saved at once, the running cell gets `--grace` seconds to end or to
yield by itself (`hai.go_suspend()` works in a cell), and the task yields. A kernel's memory does not survive that: the
next run begins with the first cell and says so; cells find `hai.get_whole_life_state()` and their checkpoints as usual.
A cell tagged `hai:once` that an earlier run has done is not run again, and keeps its outputs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import hai.task as task
from hai_jupyter.kernels.kernel_dir import kernel_dir
from hai_jupyter.notebooks import nbformat_files, resume
from hai_jupyter.notebooks.task_kernel import TaskKernelManager

FAILED, UNUSABLE = 1, 2


class Runner(NotebookClient):
    """Executes a notebook and records progress in the log and the output notebook."""

    def __init__(
        self,
        notebook: Any,
        out: Path,
        unchanged_cells: frozenset[int] = frozenset(),
        **options: Any,
    ) -> None:
        super().__init__(notebook, **options)
        self._out = out
        self._unchanged_cells = unchanged_cells
        self._total = sum(1 for c in notebook.cells if c.cell_type == "code" and c.source.strip())
        self.done = 0
        self.on_cell_execute = self._before_cell
        self.on_cell_executed = self._after_cell

    def save(self, state: str) -> None:
        """Replace the output notebook atomically."""
        self.nb.metadata["hai"] = {"task": task.task_id(), "state": state, "cells_done": self.done}
        nbformat_files.write(self.nb, self._out)

    def output(self, outs: Any, msg: Any, display_id: str | None, cell_index: int) -> Any:
        """Print text outputs to the log at once."""
        content = msg["content"]
        text = content.get("text") or content.get("data", {}).get("text/plain") or ""
        if msg["msg_type"] == "error":
            text = "\n".join(content["traceback"])
        if text:
            print(text, end="" if text.endswith("\n") else "\n", flush=True)
        return super().output(outs, msg, display_id, cell_index)

    async def async_execute_cell(
        self, cell: Any, cell_index: int, *arguments: Any, **options: Any
    ) -> Any:
        """Skip cells that an earlier run has done for good."""
        if cell_index not in self._unchanged_cells:
            return await super().async_execute_cell(cell, cell_index, *arguments, **options)
        self._print_cell(cell, "not again: ")
        self.done += 1
        return cell

    def _before_cell(self, cell: Any, cell_index: int) -> None:
        self._print_cell(cell)

    def _print_cell(self, cell: Any, prefix: str = "") -> None:
        first_line = next(iter(cell.source.strip().splitlines()), "")
        print(f"--- cell {self.done + 1} of {self._total}: {prefix}{first_line[:80]}", flush=True)

    def _after_cell(self, cell: Any, cell_index: int, execute_reply: Any) -> None:
        if execute_reply["content"]["status"] == "ok":
            self.done += 1
            resume.mark_done(cell)
        self.save("running")


def main(argv: Sequence[str] | None = None) -> int:
    """Execute a notebook. Return 0 if all cells ran, 1 if one failed, 2 if the notebook cannot be used."""
    arguments = _parser().parse_args(argv)
    out = Path(arguments.out.replace("{task}", str(task.task_id() or "local")))
    try:
        notebook = nbformat_files.read(Path(arguments.notebook))
        inject_parameters(notebook, dict(_parse_parameter(text) for text in arguments.parameter))
    except (OSError, ValueError, yaml.YAMLError) as error:
        print(f"{arguments.notebook}: {error}", file=sys.stderr)
        return UNUSABLE
    runner = Runner(
        notebook,
        out,
        resume.take_over(notebook, out),
        timeout=None,
        kernel_name=_kernel_name(notebook),
        kernel_manager_class=TaskKernelManager,
    )
    with kernel_dir() as directory:
        os.environ["JUPYTER_RUNTIME_DIR"] = str(directory)
        return asyncio.run(_run(runner, arguments.grace))


async def _run(runner: Runner, grace: float) -> int:
    suspend_requested = asyncio.Event()

    def install_handler(**_: Any) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, suspend_requested.set)

    install_handler()
    # nbclient installs a handler that would end the kernel at once; this one replaces it.
    runner.on_notebook_start = install_handler
    work = asyncio.ensure_future(runner.async_execute())
    suspend = asyncio.ensure_future(suspend_requested.wait())
    await asyncio.wait({work, suspend}, return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        await _suspend(runner, work, grace)
    if not work.done():
        work.cancel()
        await asyncio.wait({work})
        return 128 + signal.SIGTERM
    suspend.cancel()
    return _save_result(runner, work)


async def _suspend(runner: Runner, work: asyncio.Future[Any], grace: float) -> None:
    """Save, give the running cell its grace, and yield. In the cluster, this returns only if all cells have run."""
    task.receive_suspend_command()
    runner.save("suspended")
    done = f"suspend: saved after {runner.done} cells"
    print(f"{done}; the next run begins with the first one", flush=True)
    await asyncio.wait({work}, timeout=grace)
    if not work.done():
        runner.save("suspended")
        task.go_suspend()


def _save_result(runner: Runner, work: asyncio.Future[Any]) -> int:
    error = work.exception()
    runner.save("failed" if error else "finished")
    if error is None:
        print(f"all {runner.done} cells ran", flush=True)
        return 0
    if not isinstance(error, CellExecutionError):  # the traceback of a cell is printed already
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    return FAILED


def inject_parameters(notebook: Any, parameters: dict[str, Any]) -> None:
    """Add a cell that sets the parameters, after the one tagged `parameters`. Raises ValueError."""
    if not parameters:
        return
    language = notebook.metadata.get("kernelspec", {}).get("language", "python")
    if language != "python":
        raise ValueError(f"-p sets parameters of Python notebooks; this one is in {language}")
    invalid_names = [name for name in parameters if not name.isidentifier()]
    if invalid_names:
        raise ValueError(f"not names of Python variables: {', '.join(invalid_names)}")
    source = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    cell = nbformat_files.code_cell(source, metadata={"tags": ["injected-parameters"]})
    tagged = (i for i, c in enumerate(notebook.cells) if "parameters" in c.metadata.get("tags", []))
    notebook.cells.insert(next(tagged, -1) + 1, cell)


def _kernel_name(notebook: Any) -> str:
    return str(notebook.metadata.get("kernelspec", {}).get("name") or "python3")


def _parse_parameter(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"-p {text}: write it as name=value")
    return name, yaml.safe_load(value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hai_jupyter.run_notebook", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("notebook", metavar="IN")
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("-p", "--parameter", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--grace", type=float, default=8.0, metavar="SECONDS")
    return parser


if __name__ == "__main__":
    sys.exit(main())
