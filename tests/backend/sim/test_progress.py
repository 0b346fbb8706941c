"""The progress bar is shown on terminals only."""

from __future__ import annotations

import io

from hai_backend.sim.cli.progress import progress_bars


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar_with_the_virtual_day() -> None:
    out = Terminal()
    with progress_bars(out) as watch:
        move = watch("two [b]policies")
        move(3, 10, 2 * 86400.0)
    assert "two [b]policies" in out.getvalue()
    assert "3/10" in out.getvalue()
    assert "day 2.0" in out.getvalue()


def test_there_is_no_progress_bar_in_a_pipe() -> None:
    out = io.StringIO()
    with progress_bars(out) as watch:
        watch("x")(3, 10, 0.0)
    assert out.getvalue() == ""
