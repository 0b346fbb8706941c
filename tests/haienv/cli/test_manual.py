"""The command lines of the manual's page work in order, starting with an empty root."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "environments.md"


def test_every_command_line_of_the_page(haienv: Any) -> None:
    blocks = PAGE.read_text().split("```console\n")[1:]
    lines = [line for block in blocks for line in block.split("```")[0].splitlines()]
    commands = [shlex.split(line.removeprefix("$ haienv ")) for line in lines]
    assert len(commands) > 20
    for arguments in commands:
        if arguments[0] != "run":  # `run` replaces this process
            haienv.ok("", *arguments)


def test_every_command_has_help(haienv: Any) -> None:
    from haienv.cli.main import COMMANDS

    for name in COMMANDS:
        assert "Usage:" in haienv.ok(f"{name} --help").out
    assert haienv.ok("--help").out.count("\n") > len(COMMANDS)
