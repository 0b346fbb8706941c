"""The magics, in IPython with a real platform."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from hai.v1.task_pb2 import Task
from hai_jupyter.task_view import MIME, TaskList, TaskView
from tests.jupyter.browsing import EVIL
from tests.jupyter.conftest import JupyterSetup

pytestmark = pytest.mark.xdist_group("jupyter")


@pytest.fixture
def shell(setup: JupyterSetup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("HAI_CONFIG", str(setup.home / "config.toml"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(setup.root)
    made: Any = InteractiveShell.instance()
    made.run_line_magic("load_ext", "hai_jupyter")
    yield made
    made.history_manager.end_session()
    InteractiveShell.clear_instance()


def ended(shell: Any, id: int) -> str:
    """Return the output of `%hai_status` after the end of a task."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        said = repr(shell.run_line_magic("hai_status", str(id)))
        if any(word in said for word in ("SUCCEEDED", "FAILED")):
            return said
        time.sleep(0.2)
    raise AssertionError(said)


def test_a_cell_is_submitted_looked_at_and_its_log_printed(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    made = shell.run_cell_magic("hai_job", "mine -p 10", "print('the answer', 42)")
    assert isinstance(made, TaskView)
    assert repr(made) == f"task {made.id} mine WAITING_INIT"
    assert f"task {made.id} mine SUCCEEDED" in ended(shell, made.id)
    shell.run_line_magic("hai_logs", f"{made.id} -n 5 -r 0")
    assert "[0] the answer 42" in capsys.readouterr().out
    assert f"{made.id} mine" in repr(shell.run_line_magic("hai_status", ""))


def test_a_file_is_submitted_with_values_and_options(
    shell: Any, setup: JupyterSetup, capsys: pytest.CaptureFixture[str]
) -> None:
    (setup.root / "says.py").write_text("import sys\nprint('told', *sys.argv[1:])\n")
    line = "says.py --name said -v rate=0.5 -o options.tags=[from-magic]"
    made = shell.run_line_magic("hai_submit", line)
    assert "said SUCCEEDED" in ended(shell, made.id)
    shell.run_line_magic("hai_logs", str(made.id))
    assert "told --rate=0.5" in capsys.readouterr().out


def test_a_cell_is_submitted_behind_others(shell: Any) -> None:
    first = shell.run_cell_magic("hai_job", "falls:late", "raise SystemExit(3)")
    assert "FAILED" in ended(shell, first.id)
    made = shell.run_cell_magic("hai_job", "behind -a falls:late:ended", "print('behind')")
    assert "SUCCEEDED" in ended(shell, made.id)
    for line, said in (("never -a falls:late", "ended FAILED"), ("never -a nobody", "nobody")):
        with pytest.raises(UsageError, match=said):
            shell.run_cell_magic("hai_job", line, "print()")


@pytest.mark.parametrize(
    ("magic", "line", "said"),
    [
        pytest.param("hai_status", "no-such-task", "no-such-task", id="no such task"),
        pytest.param("hai_submit", "no-such-file.py", "no-such-file.py", id="no such file"),
        pytest.param("hai_logs", "", "required", id="nothing named"),
        pytest.param("hai_logs", "1 -n 99999999999", "too large", id="too many lines"),
    ],
)
def test_a_mistake_is_a_sentence(shell: Any, magic: str, line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        shell.run_line_magic(magic, line)


def test_a_task_shows_itself_in_every_front_end_and_its_name_is_only_text() -> None:
    view = TaskView(Task(id=7, name=EVIL))
    bundle = view._repr_mimebundle_()
    assert bundle[MIME] == {"id": 7}
    assert "<img" not in bundle["text/html"]
    assert "<img" not in TaskList([Task(id=7, name=EVIL)])._repr_html_()
    assert repr(TaskList([])) == "no tasks"


def test_a_name_steers_no_terminal() -> None:
    task = Task(id=7, name="a\x1b[2J\u202eb\nc")
    for shown in (repr(TaskView(task)), repr(TaskList([task]))):
        assert shown.isprintable()
        assert r"a\x1b[2J\u202eb\nc" in shown
