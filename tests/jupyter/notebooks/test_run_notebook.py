"""`python -m hai_jupyter.run_notebook` in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from hai_backend.launch import rank_dirs
from hai_jupyter.notebooks import nbformat_files
from hai_jupyter.notebooks.resume import ONCE, mark_done, take_over
from hai_jupyter.run_notebook import inject_parameters

NB: Any = nbformat


def write(path: Path, *sources: str, tags: dict[int, str] | None = None) -> Path:
    cells = [NB.v4.new_code_cell(source) for source in sources]
    for setup, tag in (tags or {}).items():
        cells[setup].metadata.tags = [tag]
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
    found = nbformat_files.read(tmp_path / "deep" / "out.local.ipynb")
    assert texts(found) == ["0.5 a 'b'\n"]
    assert "0.5 a 'b'" in done.stdout  # the output of cells also goes to the log
    assert found.metadata.hai == {"task": None, "state": "finished", "cells_done": 3}


def test_what_ran_before_a_failing_cell_is_kept(tmp_path: Path) -> None:
    source = write(tmp_path / "a.ipynb", "print('kept')", "1 / 0", "print('never')")
    out = tmp_path / "out.ipynb"
    done = subprocess.run(command(source, out), capture_output=True, text=True)
    assert done.returncode == 1
    found = nbformat_files.read(out)
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
    found = nbformat_files.read(out)
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
    assert nbformat_files.read(out).metadata.hai.cells_done == 2
    (tmp_path / "gate").touch()
    again = run()
    assert again.returncode == 0, again.stderr
    assert "an earlier run was failed after 2 cells" in again.stdout
    assert "cell 2 of 3: not again: n =" in again.stdout
    assert texts(nbformat_files.read(out)) == ["each\n", "ran 1\n"]
    assert nbformat_files.read(out).metadata.hai.cells_done == 3
    assert run().returncode == 0  # after a complete run, all cells run again
    assert texts(nbformat_files.read(out)) == ["each\n", "ran 2\n"]


def test_a_cell_that_was_changed_or_has_no_tag_is_run_again(tmp_path: Path) -> None:
    out = write(tmp_path / "out.ipynb", "a", "b", "c", tags={0: ONCE, 2: ONCE})
    before = nbformat_files.read(out)
    for cell in before.cells[:2]:
        mark_done(cell)
    nbformat_files.write(before, out)
    notebook = nbformat_files.read(
        write(tmp_path / "in.ipynb", "a", "b", "c", tags={0: ONCE, 2: ONCE})
    )
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
        inject_parameters(notebook, {"a": 1})


def test_notebooks_of_one_folder_run_together_and_leave_only_their_results(tmp_path: Path) -> None:
    rank_dir, folder = tmp_path / "run" / "1-1-0", tmp_path / "folder"
    rank_dir.mkdir(parents=True)
    folder.mkdir()
    variables = {**os.environ, "HAI_CONTROL_FILE": str(rank_dir / "control")}
    runs = []
    for n in range(3):
        source = write(folder / f"n{n}.ipynb", f"import time; time.sleep(1); print({n})")
        line = command(source, folder / f"o{n}.ipynb")
        runs.append(subprocess.Popen(line, cwd=folder, env=variables, stderr=subprocess.PIPE))
    told = [run.communicate()[1].decode() for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0], told
    found = [texts(nbformat_files.read(folder / f"o{n}.ipynb")) for n in range(3)]
    assert found == [["0\n"], ["1\n"], ["2\n"]]
    assert "Signature" not in "".join(told)
    left = sorted(path.name for path in folder.iterdir())
    assert left == ["n0.ipynb", "n1.ipynb", "n2.ipynb", "o0.ipynb", "o1.ipynb", "o2.ipynb"]
    assert not list(rank_dir.iterdir())


@pytest.mark.parametrize("length", [5, 90], ids=["short", "too long for a socket"])
def test_what_a_killed_notebook_leaves_goes_with_its_rank(tmp_path: Path, length: int) -> None:
    with tempfile.TemporaryDirectory(prefix="hai-t", dir="/tmp") as root:
        home = Path(root) / ("x" * length)
        rank_dir, folder = home / "run" / "1-1-0", tmp_path
        rank_dir.mkdir(parents=True)
        source = write(
            folder / "a.ipynb", "print('ready', flush=True)\nimport time; time.sleep(60)"
        )
        with subprocess.Popen(
            command(source, folder / "out.ipynb"),
            cwd=folder,
            env={**os.environ, "HAI_CONTROL_FILE": str(rank_dir / "control")},
            stdout=subprocess.PIPE,
            text=True,
        ) as run:
            assert run.stdout is not None
            while run.stdout.readline().strip() != "ready":
                pass
            (made,) = rank_dir.iterdir()
            sockets = made / "short" if length > 50 else made
            lies_in = sockets.resolve()
            assert any(path.is_socket() for path in lies_in.iterdir())
            kernel = psutil.Process(run.pid).children()
            run.kill()
            for process in kernel:
                process.kill()
        rank_dirs.clear(home, [rank_dir])
        assert not lies_in.exists()
        assert not rank_dir.exists()
    assert {path.name for path in folder.iterdir()} <= {"a.ipynb", "out.ipynb"}


def test_a_link_of_a_program_leads_the_platform_nowhere_else(tmp_path: Path) -> None:
    rank_dir, precious = tmp_path / "run" / "1-1-0", tmp_path / "precious.json"
    (rank_dir / "kernel-x").mkdir(parents=True)
    precious.touch()
    (rank_dir / "kernel-x" / "short").symlink_to(tmp_path)
    rank_dirs.clear(tmp_path, [rank_dir])
    assert precious.exists()
    assert not rank_dir.exists()
