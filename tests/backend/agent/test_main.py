"""The start of an agent and its exit codes."""

from __future__ import annotations

import pytest

from hai_backend.agent.__main__ import format_error, main


@pytest.mark.parametrize("argv", [["hai-agent"], ["hai-agent", "a", "b"]])
def test_a_wrong_call_says_how_to_call_it(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert "usage: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("a bug"), "ValueError: a bug"),
        (ExceptionGroup("parts", [ExceptionGroup("more", [OSError("full")])]), "OSError: full"),
    ],
)
def test_the_reason_of_a_failure_is_one_line(error: Exception, words: str) -> None:
    assert format_error(error) == words
