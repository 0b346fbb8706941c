"""The variables of the server that tasks on its machine inherit. The manual has the same list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hai_backend.launch.rank_dirs import INHERITED, inherited

MANUAL = Path(__file__).parents[3] / "docs/operate.md"
OF_A_SHELL = "PWD OLDPWD _ PS1 SHLVL VIRTUAL_ENV CONDA_PREFIX PYTHONPATH SSH_AUTH_SOCK DISPLAY TERM XDG_RUNTIME_DIR"


@pytest.mark.parametrize("name", [*OF_A_SHELL.split(), "AWS_SECRET_ACCESS_KEY", "HAI_SERVER_DATABASE"])  # fmt: skip
def test_nothing_of_a_shell_reaches_tasks(name: str) -> None:
    assert inherited({name: "x", "HOME": "/home/ada"}) == {"HOME": "/home/ada"}


@pytest.mark.parametrize("name", ["PATH", "TZ", "LC_ALL", "https_proxy", "NCCL_SOCKET_IFNAME"])
def test_what_the_machine_needs_reaches_tasks(name: str) -> None:
    assert inherited({name: "x"}) == {name: "x"}


def test_the_manual_has_the_same_list() -> None:
    _, _, after = MANUAL.read_text().partition("| variables | what for |\n|---|---|\n")
    rows = (line.strip("| ").split(" | ") for line in after.partition("\n\n")[0].splitlines())
    assert {why: tuple(re.findall(r"`([^`]+)`", names)) for names, why in rows} == INHERITED
