"""kill -9 at every step: a child process is killed just before its n-th change of the file system, for every n.

Audit events of Python count the steps, so the test also covers steps that a command gains later. At every step,
listed environments are complete, `doctor --fix` deletes all leftovers, and the repeated command succeeds.
"""

from __future__ import annotations

import io
import os
import select
import shutil
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest

from haienv.backends import uv
from haienv.cli.main import main
from haienv.layers.integrity import compare_environment
from haienv.store import reverse_dependencies
from haienv.store.registry import list_environments_of

START = "create one --no_extend fast tool"
CHANGES = ("os.rename", "os.mkdir", "os.symlink", "os.remove", "os.rmdir", "subprocess.Popen")
TOUCHES = ("os.chmod", "os.chown", "os.utime")  # nobody reads files that are being built


def killed_at(step: int, line: str) -> bool:
    """Run a command line in a child that is killed at a step; False if it ended before."""
    child = os.fork()
    if child == 0:
        _die_at(step)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            code = main(line.split())
        os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def _die_at(step: int) -> None:
    remaining = step

    def count() -> bool:
        nonlocal remaining
        remaining -= 1
        return remaining == 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        touches = event in TOUCHES and ".building" not in str(arguments[0])
        opens = event == "open" and remaining > 0 and _writes(arguments)
        if (event in CHANGES or touches or opens) and count():
            os.kill(os.getpid(), signal.SIGKILL)
        if opens and count():  # killed after it opened the file, before it wrote
            with suppress(OSError, TypeError):  # the argument may be a descriptor
                os.open(arguments[0], arguments[2], 0o600)
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is not installed")
def test_the_installer_dies_with_haienv(haienv: Any, tmp_path: Path) -> None:
    """A surviving installer would write into directories that doctor has cleaned."""
    pid_pipe, slow = tmp_path / "told", tmp_path / "slow"
    os.mkfifo(pid_pipe)
    slow.write_text(f"#!/bin/sh\necho $$ > '{pid_pipe}'\nexec sleep 60\n")
    slow.chmod(0o755)
    haienv.monkeypatch.setattr(uv, "_find_uv", lambda: str(slow))
    child = os.fork()
    if child == 0:
        main(["create", "one", "--no_extend"])
        os._exit(0)
    make_installer = os.pidfd_open(int(pid_pipe.read_text()))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    ended, _, _ = select.select([make_installer], [], [], 30)
    os.close(make_installer)
    assert ended
    require_nothing_left(haienv)


def _writes(arguments: tuple[Any, ...]) -> bool:
    flags = arguments[2]
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def require_complete(haienv: Any) -> dict[str, str]:
    """Return layer and visibility by name. Fail if a listed environment is incomplete."""
    found = list(list_environments_of(haienv.home, haienv.home.user))
    for each in found:
        assert each.is_ready, f"{each}: {each.fault}"
        assert compare_environment(each) == []
    return {each.name: f"{each.layer_id} {each.metadata.visibility}" for each in found}


def require_nothing_left(haienv: Any) -> None:
    haienv.ok("doctor --fix")
    assert haienv.ok("doctor --json").json == []
    user_dir = haienv.home.user_dir
    assert not [
        p
        for d in (".building", ".trash")
        if (user_dir / d).exists()
        for p in (user_dir / d).iterdir()
    ]
    used = {each.layer_id for each in list_environments_of(haienv.home, haienv.home.user)}
    used |= {each.metadata.previous for each in list_environments_of(haienv.home, haienv.home.user)}
    retired = {
        path.parent.name for path in (user_dir / ".layers").glob("*/used")
    }  # gc deletes them later
    assert {path.name for path in (user_dir / ".layers").glob("*")} <= used | retired


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("line", "undo"),
    [
        pytest.param("create two --extend base[bob] plain", "remove two --yes", id="create"),
        pytest.param("remove bare --yes", "create bare --no_extend", id="remove"),
        pytest.param("clone one two", "remove two --yes", id="clone"),
        pytest.param("rename one two", "rename two one", id="rename"),
        pytest.param("config set one visibility public", "config clear one visibility", id="config"),
        pytest.param("upgrade old", "upgrade old --rollback", id="upgrade"),
        pytest.param("pack one", "pack one --remove", id="pack"),
    ],
)  # fmt: skip
def test_killed_at_every_step(haienv: Any, line: str, undo: str) -> None:
    haienv.ok(START)
    if "bob" in line:
        haienv.as_user("bob").ok("create base --no_extend fast==1.0 --visibility public")
        haienv.as_user("ann")
    if "bare" in line:  # each file of the layer is a step
        haienv.ok("create bare --no_extend")
    if "old" in line:  # it has fast 1.0, and would install 2.0
        haienv.ok("create old --no_extend fast==1.0")
        haienv.ok("install old fast>=1")
    before = require_complete(haienv)
    step = 1
    while killed_at(step, line):
        after = require_complete(haienv)
        require_nothing_left(haienv)
        assert reverse_dependencies.list_existing_marks(
            haienv.home
        ) == reverse_dependencies.list_needed_marks(haienv.home)
        assert require_complete(haienv) == after
        if after != before:  # otherwise the next step repeats the command
            haienv.ok(undo)
            assert require_complete(haienv) == before
        step += 1
    assert step > 3
