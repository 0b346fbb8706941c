"""Questions to the person at the terminal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click


def confirm(question: str) -> bool:
    """Ask for yes or no. Raise click.Abort on Ctrl-C at once, also while an event loop runs."""
    with _default_sigint():
        return click.confirm(question, err=True)


@contextmanager
def _default_sigint() -> Iterator[None]:
    """Let Ctrl-C raise at once. The handler of asyncio would wait for the next await.

    If our parent process ignores SIGINT, we ignore it, too.
    """
    previous = signal.getsignal(signal.SIGINT)
    if previous is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def read_secret(label: str) -> str:
    """Ask for a secret without echo, or read a line of stdin if it is not a terminal."""
    if sys.stdin.isatty():
        return str(click.prompt(label, hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\n")
