"""haienv works with deep chains of parents, long paths, read-only roots, and accounts without a name."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from haienv.activate.__main__ import main as print_activation
from haienv.cli.main import main
from haienv.errors import UsageError
from haienv.store.layout import Home

DEPTH = 8
WRITES = ("os.rename", "os.mkdir", "os.symlink", "os.remove", "os.rmdir", "os.chmod", "os.utime")


def test_a_deep_chain_of_parents(haienv: Any) -> None:
    haienv.ok("create e0 --no_extend fast==1.0 tool")
    for n in range(1, DEPTH):
        own = "plain==1.0" if n == 3 else ""
        haienv.ok(
            f"create e{n} --extend e{n - 1} {own} --extra-environment AT={n} --extra-environment E{n}=x"
        )
    last = f"e{DEPTH - 1}"
    assert (
        haienv.run(last, "import fast, tool, plain; print(fast.VERSION, plain.VERSION)")
        == "1.0 1.0"
    )
    tool = haienv.get(last).path / "bin" / "tool"
    done = subprocess.run([tool, "plain"], capture_output=True, text=True, check=True)
    assert done.stdout == "plain 1.0\n"
    assert haienv.ok(f"freeze {last} --own --json").json == {}
    text = io.StringIO()
    with redirect_stdout(text):
        assert print_activation(["bash", last]) == 0
    assert f"AT='{DEPTH - 1}'" in text.getvalue()
    assert all(f"export E{n}='x'" in text.getvalue() for n in range(1, DEPTH))


def test_a_long_path_in_another_script(haienv: Any, tmp_path: Path, run_shell: Any) -> None:
    """The path is longer than the kernel allows in a shebang line."""
    root = tmp_path / "环境 ünter" / ("x" * 100) / ("y" * 100)
    haienv.monkeypatch.setenv("HAIENV_HOME", str(root))
    haienv.ok("create base --no_extend fast==1.0 tool")
    haienv.ok("create top --extend base plain")
    for name in ("base", "top"):
        tool = root / "ann" / name / "current" / "bin" / "tool"
        done = subprocess.run([tool, "fast"], capture_output=True, text=True, check=True)
        assert done.stdout == "fast 1.0\n"
    command = Path(sys.executable).parent / "haienv"
    done = run_shell(
        "bash", f"source '{command}' top && tool plain", HAIENV_HOME=str(root), HAIENV_USER="ann"
    )
    assert done.stdout == b"plain 2.0\n", done.stderr


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda: main(["list", "--json"]), id="list"),
        pytest.param(lambda: main(["info", "top"]), id="info"),
        pytest.param(lambda: main(["freeze", "base[bob]"]), id="freeze"),
        pytest.param(lambda: main(["which", "top", "tool"]), id="which"),
        pytest.param(lambda: main(["verify", "top"]), id="verify"),
        pytest.param(lambda: main(["config", "show", "top"]), id="config show"),
        pytest.param(lambda: main(["diff", "top", "base[bob]"]), id="diff"),
        pytest.param(lambda: main(["doctor"]), id="doctor"),
        pytest.param(lambda: print_activation(["bash", "top"]), id="enter"),
    ],
)
def test_read_only_commands_write_nothing(haienv: Any, work: Callable[[], int]) -> None:
    haienv.as_user("bob").ok("create base --no_extend tool --visibility public")
    haienv.as_user("ann").ok("create top --extend 'base[bob]' plain")
    assert _in_a_child(work, str(haienv.home.root)) == 0


def _in_a_child(work: Callable[[], int], root: str) -> int:
    """Run work in a child process and return its exit code; 99 if it writes below the root."""
    child = os.fork()
    if child == 0:
        sys.addaudithook(lambda event, arguments: _end_if_writing(event, arguments, root))
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            code = work()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _end_if_writing(event: str, arguments: tuple[Any, ...], root: str) -> None:
    opened = (
        event == "open"
        and isinstance(arguments[2], int)
        and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    )
    if (opened or event in WRITES) and str(arguments[0]).startswith(root):
        os._exit(99)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another account")
def test_an_account_without_name_and_home(tmp_path: Path) -> None:
    """As in containers that run with an unknown uid."""
    child = os.fork()
    if child == 0:
        os._exit(_without_account(str(tmp_path)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _without_account(root: str) -> int:
    os.setuid(54321)
    os.environ.pop("HOME", None)
    if Home.from_environ({"HAIENV_HOME": root}).user != "54321":
        return 1
    try:
        Home.from_environ({})
    except UsageError as error:
        return 0 if "set HAIENV_HOME" in error.hint else 2
    return 3
