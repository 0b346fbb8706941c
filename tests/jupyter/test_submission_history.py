"""Changes of a file since its last submission."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_jupyter import submission_history
from hai_jupyter.notebooks import nbformat_files


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data" / "hai_jupyter" / "submitted"


def test_lines_that_changed_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("rate = 0.1\nrun()\n")
    assert submission_history.changes("a.py", file) is None
    submission_history.save("a.py", file)
    assert submission_history.changes("a.py", file) == ""
    file.write_text("rate = 0.2\nrun()\n")
    shown = (submission_history.changes("a.py", file) or "").splitlines()
    assert shown[-3:] == ["-rate = 0.1", "+rate = 0.2", " run()"]
    assert submission_history.changes("other name", file) is None


def test_of_notebooks_the_cells_count_and_not_what_they_printed(tmp_path: Path) -> None:
    file = tmp_path / "n.ipynb"
    nbformat_files.write(
        nbformat_files.new_notebook([nbformat_files.code_cell("print(1)")], {}), file
    )
    submission_history.save("n", file)
    outputs = [nbformat_files.printed_output("1\n")]
    ran = nbformat_files.new_notebook(
        [nbformat_files.code_cell("print(1)", outputs=outputs, execution_count=1)], {}
    )
    nbformat_files.write(ran, file)
    assert submission_history.changes("n", file) == ""
    nbformat_files.write(
        nbformat_files.new_notebook([nbformat_files.code_cell("print(2)")], {}), file
    )
    assert "+print(2)" in (submission_history.changes("n", file) or "")


def test_what_is_kept_of_a_private_file_is_private(tmp_path: Path, data: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("rate = 0.1\n")
    file.chmod(0o600)
    submission_history.save("a.py", file)
    assert [kept.stat().st_mode & 0o777 for kept in data.iterdir()] == [0o600]


@pytest.mark.parametrize(
    "content",
    [pytest.param(b"\xff\xfe\x00", id="no text"), pytest.param(b"x" * 600_000, id="long")],
)
def test_what_can_not_be_compared_is_not_kept(tmp_path: Path, data: Path, content: bytes) -> None:
    file = tmp_path / "a.sh"
    file.write_bytes(content)
    submission_history.save("a", file)
    assert not data.exists()
    assert submission_history.changes("a", file) is None


def test_old_ones_are_forgotten(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission_history, "_MAX_FILES", 3)
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    for number in range(5):
        submission_history.save(f"name {number}", file)
    assert len([*data.iterdir()]) == 3
    assert submission_history.changes("name 4", file) == ""
