"""`python -m hai_jupyter.run_notebook` as its users run it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from hai_jupyter import nbfiles
from hai_jupyter.resuming import ONCE, mark_done, take_over
from hai_jupyter.run_notebook import inject

NB: Any = nbformat


def write(path: Path, *sources: str, tags: dict[int, str] | None = None) -> Path:
    cells = [NB.v4.new_code_cell(source) for source in sources]
    for place, tag in (tags or {}).items():
        cells[place].metadata.tags = [tag]
    NB.write(NB.v4.new_notebook(cells=cells), path)
    return path


def command(source: Path, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "hai_jupyter.run_notebook", str(source), str(out), *more]


def texts(notebook: Any) -> list[str]:
    return [o.get("text", "") for cell in notebook.cells for o in cell.get("outputs", [])]


def test_parameters_stand_after_the_cell_that_is_tagged_and_win(tmp_path: Path) -> None:
    tagged = write(
        tmp_path / "a.ipynb", "lr = 1; name = 'x'", "print(lr, name)", tags={0: "parameters"}
    )
    out = tmp_path / "deep" / "out.{task}.ipynb"
    done = subprocess.run(
        command(tagged, out, "-p", "lr=0.5", "-p", "name=a 'b'"), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = nbfiles.read(tmp_path / "deep" / "out.local.ipynb")
    assert texts(found) == ["0.5 a 'b'\n"]
    assert "0.5 a 'b'" in done.stdout  # the log shows it too
    assert found.metadata.hai == {"task": None, "state": "finished", "cells_done": 3}


def test_what_ran_before_a_failing_cell_is_kept(tmp_path: Path) -> None:
    source = write(tmp_path / "a.ipynb", "print('kept')", "1 / 0", "print('never')")
    out = tmp_path / "out.ipynb"
    done = subprocess.run(command(source, out), capture_output=True, text=True)
    assert done.returncode == 1
    found = nbfiles.read(out)
    assert texts(found)[0] == "kept\n"
    assert found.metadata.hai.state == "failed"
    assert found.cells[1].outputs[0].ename == "ZeroDivisionError"
    assert "ZeroDivisionError" in done.stdout


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("not json", "a.ipynb: not a notebook: ", id="no notebook"),
        pytest.param(None, "No such file", id="no file"),
    ],
)
def test_a_file_that_can_not_be_used_is_named(
    tmp_path: Path, text: str | None, sentence: str
) -> None:
    source = tmp_path / "a.ipynb"
    if text is not None:
        source.write_text(text)
    done = subprocess.run(command(source, tmp_path / "o"), capture_output=True, text=True)
    assert done.returncode == 2
    assert "a.ipynb" in done.stderr
    assert sentence in done.stderr


def test_a_suspend_saves_what_has_run_and_gives_the_running_cell_its_time(tmp_path: Path) -> None:
    slow = "import time\nprint('slow', flush=True)\ntime.sleep(60)"
    source, out = write(tmp_path / "a.ipynb", "print('first')", slow), tmp_path / "out.ipynb"
    with subprocess.Popen(
        command(source, out, "--grace", "0.2"), stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        while run.stdout.readline().strip() != "slow":
            pass
        os.kill(run.pid, signal.SIGTERM)
        rest = run.stdout.read()
    assert "saved after 1 cells" in rest
    found = nbfiles.read(out)
    assert found.metadata.hai.state == "suspended"
    assert texts(found) == ["first\n", "slow\n"]
    again = subprocess.run(command(source, out, "-p", "1=2"), capture_output=True, text=True)
    assert (again.returncode, "not names" in again.stderr) == (2, True)


def test_cells_tagged_once_are_not_run_again_after_a_run_that_did_not_end_well(
    tmp_path: Path,
) -> None:
    count = "n = int(open('n').read() or 0) + 1; open('n', 'w').write(str(n)); print('ran', n)"
    gate = "import os\nassert os.path.exists('gate')"
    source = write(tmp_path / "a.ipynb", "print('each')", count, gate, tags={1: "hai:once"})
    out = tmp_path / "out.ipynb"
    (tmp_path / "n").touch()

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command(source, out), cwd=tmp_path, capture_output=True, text=True)

    assert run().returncode == 1
    assert nbfiles.read(out).metadata.hai.cells_done == 2
    (tmp_path / "gate").touch()
    again = run()
    assert again.returncode == 0, again.stderr
    assert "an earlier run was failed after 2 cells" in again.stdout
    assert "cell 2 of 3: not again: n =" in again.stdout
    assert texts(nbfiles.read(out)) == ["each\n", "ran 1\n"]
    assert nbfiles.read(out).metadata.hai.cells_done == 3
    assert run().returncode == 0  # it had finished: all of it again
    assert texts(nbfiles.read(out)) == ["each\n", "ran 2\n"]


def test_a_cell_that_was_changed_or_has_no_tag_is_run_again(tmp_path: Path) -> None:
    out = write(tmp_path / "out.ipynb", "a", "b", "c", tags={0: ONCE, 2: ONCE})
    before = nbfiles.read(out)
    for cell in before.cells[:2]:
        mark_done(cell)
    nbfiles.write(before, out)
    notebook = nbfiles.read(write(tmp_path / "in.ipynb", "a", "b", "c", tags={0: ONCE, 2: ONCE}))
    assert take_over(notebook, out) == {0}
    notebook.cells[0].source = "changed"
    assert take_over(notebook, out) == frozenset()
    out.write_text("half of a notebook")
    assert take_over(notebook, out) == frozenset()


def test_only_python_takes_parameters() -> None:
    notebook = NB.v4.new_notebook(
        metadata={"kernelspec": {"language": "R", "name": "ir", "display_name": "R"}}
    )
    with pytest.raises(ValueError, match="in R"):
        inject(notebook, {"a": 1})
