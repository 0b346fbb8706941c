"""`hai-server` on simulated nodes. Other processes (tests/load/agents.py) run the agents of its ranks.

    python -m tests.load.server --home DIR --nodes 5000 …

It writes the ranks that it starts to DIR/ranks.jsonl. After a restart all of them exist.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from hai_backend import main as server_main
from hai_backend.config import Settings
from hai_backend.domain.node import Node
from hai_backend.launch.base import Launcher, RankKey, RankLaunch
from hai_backend.launch.fake import FakeLauncher

RANKS = "ranks.jsonl"


class RecordingLauncher(FakeLauncher):
    """A launcher that starts nothing, and writes to a file what must be started."""

    def __init__(self, nodes: Sequence[Node], path: Path) -> None:
        rows = read_ranks(path)
        existing = [RankKey(*row[:3]) for row in rows]
        super().__init__(nodes, existing, {key[:2] for key in rows})
        self._path = path

    async def start(self, ranks: Sequence[RankLaunch]) -> None:
        """See Launcher."""
        await super().start(ranks)
        with self._path.open("a") as file:
            for rank in ranks:
                key = rank.key
                file.write(json.dumps((key.task_id, key.run, key.rank, rank.token)) + "\n")


def read_ranks(path: Path) -> list[tuple[int, int, int, str]]:
    """Return task, run, rank and token of all ranks that were started, without a line that is being written."""
    text = path.read_text() if path.exists() else ""
    return [tuple(json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]


def make_launcher(settings: Settings, address: str) -> Launcher:
    nodes = [Node(f"node{number}") for number in range(1, settings.nodes + 1)]
    return RecordingLauncher(nodes, settings.home / RANKS)


if __name__ == "__main__":
    sys.exit(server_main.main(sys.argv[1:], make_launcher=make_launcher))
