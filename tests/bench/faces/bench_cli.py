"""CPU of the command line: `hai --help` and `hai list`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.bench.figures import Figure, cpu_seconds, environment
from tests.support.servers import server_process

HAI = str(Path(sys.executable).parent / "hai")


def figures() -> Iterator[Figure]:
    with server_process() as server:
        env = environment(server.profile())
        for name, argv, bar in (
            ("hai --help", [HAI, "--help"], 150),
            ("hai list", [HAI, "list"], 400),
        ):
            best = min(cpu_seconds(argv, env) for _ in range(7)) * 1000
            yield Figure(f"CPU of {name}, best of 7", best, "ms", bar)
