"""How programs are started in images without some common commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_backend.agent.program.preparation import with_available_shell


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """One with /bin/sh alone."""
    shell = tmp_path / "sh"
    shell.write_text("")
    shell.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "run"),
    [
        pytest.param(["bash", "a.sh", "x"], ["sh", "a.sh", "x"], id="a script"),
        pytest.param(["bash", "-c", "[[ a ]]"], ["bash", "-c", "[[ a ]]"], id="bash by name"),
        pytest.param(["python3", "a.py"], ["python3", "a.py"], id="another program"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_a_script_runs_in_the_shell_that_is_there(
    image: Path, argv: list[str], run: list[str]
) -> None:
    assert with_available_shell(argv, {"PATH": str(image)}) == run


def test_bash_is_taken_where_it_is(image: Path) -> None:
    (image / "sh").rename(image / "bash")
    assert with_available_shell(["bash", "a.sh"], {"PATH": str(image)}) == ["bash", "a.sh"]
