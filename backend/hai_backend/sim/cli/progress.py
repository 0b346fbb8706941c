"""A progress bar on stderr if it is a terminal; no output in pipes and logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from hai_backend.sim.replay.job import Progress

Watch = Callable[[str], Progress]
"""Starts a progress bar with a name, and returns the function that updates it."""


@contextmanager
def progress_bars(out: TextIO) -> Iterator[Watch]:
    """Show progress bars below one another within the block."""
    if not out.isatty():
        yield lambda label: _silent
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn("{task.fields[day]}"),
        rich.TimeElapsedColumn(),
    )
    with rich.Progress(*columns, console=Console(file=out)) as bars:

        def begin(label: str) -> Progress:
            bar = bars.add_task(label, total=None, day="")

            def move(done: int, total: int, now: float) -> None:
                bars.update(bar, completed=done, total=total, day=f"day {now / 86400:.1f}")

            return move

        yield begin


def _silent(done: int, total: int, now: float) -> None:
    """Report nothing."""
