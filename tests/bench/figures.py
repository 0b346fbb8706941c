"""The result of a benchmark: a named figure, with the limit that it must keep."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hai.client.profile import Profile


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value. `bar` is the least good value if `at_least` is set, else the greatest."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    at_least: bool = False

    @property
    def ok(self) -> bool:
        if self.bar is None:
            return True
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    def as_dict(self) -> dict[str, Any]:
        shown = asdict(self)
        shown["value"] = round(self.value, 4)
        return {**shown, "ok": self.ok}


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value at the percentile, by the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def cpu_seconds(command: Sequence[str], env: dict[str, str]) -> float:
    """Return the user and system CPU seconds of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def environment(profile: Profile) -> dict[str, str]:
    """Return variables that point the `hai` command at a server. Bytecode is cached, as an installer would do."""
    own = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    compiled = Path(tempfile.gettempdir()) / "hai-bench-bytecode"
    return {
        **own,
        "HAI_SERVER": profile.server,
        "HAI_TOKEN": profile.token,
        "PYTHONPYCACHEPREFIX": str(compiled),
    }
