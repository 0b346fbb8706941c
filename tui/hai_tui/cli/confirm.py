"""A yes or no from the person at the terminal, also while an event loop runs: its Ctrl-C waits for the next await."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import click


def confirmed(question: str) -> bool:
    """Ask. Raises Abort at Ctrl-C, at once."""
    with _interrupting():
        return click.confirm(question, err=True)


@contextmanager
def _interrupting() -> Iterator[None]:
    """Ctrl-C raises where we are; a parent that ignores it stays obeyed."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
