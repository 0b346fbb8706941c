"""A command loads only the modules that it needs; the limits of CPU time depend on this."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FORBIDDEN_FOR_HELP = ["grpc", "google", "rich", "yaml", "asyncio", "textual"]
FORBIDDEN_FOR_HELP += ["hai.client.client", "hai.client.connection.transport", "hai.client.errors"]
FORBIDDEN_FOR_LIST = ["rich", "yaml", "kubernetes", "textual", "hai_backend", "sqlalchemy"]

FORBIDDEN_FOR_CLUSTER = ["kubernetes", "grpc", "google", "yaml", "hai_backend", "textual"]

_CLUSTER = "from hai_tui.cli.main import main; main(['cluster', 'config'])"
_HELP = "from hai_tui.cli.main import main; main(['--help'])"
_LIST = """
from hai.client.fake.server import FakeClient
from hai_tui.cli.main import main
assert main(["list"], connect=lambda profile: FakeClient()) == 0
"""


def loaded(program: str, **variables: str) -> set[str]:
    """Return the names of all modules that a program has loaded in a process of its own."""
    tail = "\nimport sys; print('\\n' + ' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program + tail],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("program", "forbidden"),
    [
        pytest.param(_HELP, FORBIDDEN_FOR_HELP, id="help"),
        pytest.param(_LIST, FORBIDDEN_FOR_LIST, id="list"),
        pytest.param(_CLUSTER, FORBIDDEN_FOR_CLUSTER, id="cluster"),
    ],
)
def test_loads_no_more_than_needed(program: str, forbidden: list[str]) -> None:
    assert loaded(program).isdisjoint(forbidden)


def test_help_imports_no_command() -> None:
    assert not [name for name in loaded(_HELP) if name.startswith("hai_tui.cli.commands.")]
