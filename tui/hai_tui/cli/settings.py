"""What holds for one invocation: how to reach a server, and how to show answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hai.client.client import Client

Connect = Callable[[str | None], AbstractAsyncContextManager["Client"]]

FORMATS = ("table", "wide", "json", "yaml", "name")


@dataclass(slots=True)
class Settings:
    """Filled in by the common options while the command line is parsed; then only read."""

    connect: Connect
    clock: Callable[[], float]
    profile: str | None = None
    output: str = "table"
    headers: bool = True
    columns: tuple[str, ...] = ()
    quiet: bool = False
    color: bool = True
    debug: bool = False

    @property
    def json(self) -> bool:
        """True when a program reads the answer."""
        return self.output == "json"

    @property
    def sentences(self) -> bool:
        """True when outcomes are told in words, rather than listed at the end."""
        return self.output in ("table", "wide") and not self.quiet

    @property
    def decorated(self) -> bool:
        """True when a person at a terminal reads the answer."""
        return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def colored(self) -> bool:
        """True when colours are welcome too."""
        return self.decorated and self.color and not os.environ.get("NO_COLOR")
