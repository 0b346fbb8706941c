"""Tests the output of command lines against files: a command line, ----, and its output.

`! ` marks lines of stderr. A last line `exit N` is an exit code other than 0. ==== separates the commands. `pytest
tests/cli --rewrite` writes the current output into the files.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_tui.cli.commands.cluster.version import client_version

FOLDER = Path(__file__).parent / "transcripts"
RULE, NEXT = "----\n", "====\n"


def transcript(hai, command: str) -> str:
    result = hai.line(command)
    errors = "".join(f"! {line}\n" for line in result.err.splitlines())
    shown = result.out + errors + (f"exit {result.code}\n" if result.code else "")
    return shown.replace(client_version(), "VERSION")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda p: p.stem)
def test_transcript(path: Path, hai, request: pytest.FixtureRequest) -> None:
    blocks = [block.partition(RULE) for block in path.read_text("utf-8").split(NEXT)]
    now = [(command, transcript(hai, command)) for command, _, _ in blocks]
    if request.config.getoption("--rewrite", default=False):
        path.write_text(NEXT.join(f"{command}{RULE}{output}" for command, output in now), "utf-8")
        return
    for (command, output), (_, _, expected) in zip(now, blocks, strict=True):
        assert output == expected, command
