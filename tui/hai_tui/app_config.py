"""The options with which the app was started."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from hai.client.profile import Profile
from hai_tui.session import Connect, connect


@dataclass(frozen=True, slots=True)
class AppConfig:
    """Options of the command line. Tests pass their own `connect` and `clock`."""

    profile: str | None = None
    readonly: bool = False
    start: str = "tasks"  # what `:` would take
    connect: Connect = connect
    clock: Callable[[], float] = time.time
    chosen: Profile | None = None  # instead of what the name and the environment choose
