"""Logs on a full disk: acknowledged lines are kept, the database has a reserve, and freed space is used at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai.host.disk_reserve import disk_space
from hai_backend.domain.errors import Unavailable
from hai_backend.logs import store as store_module
from hai_backend.logs.store import LogStore
from tests.backend.logs.test_store import Key, line, texts
from tests.small_disk import fill, small_disk


@pytest.mark.parametrize(
    "left", [pytest.param(0, id="nothing"), pytest.param(700_000, id="little")]
)
def test_a_full_disk_costs_no_line(left: int, tmp_path: Path, monkeypatch) -> None:
    """An agent sends again what was not acknowledged; nothing of it is there twice, or half."""
    monkeypatch.setattr(store_module, "RESERVE_SECONDS", 0.0)
    with small_disk(tmp_path / "disk", 8) as disk:
        root = disk / "logs"
        agent = Agent(root)
        agent.say(100)
        filling = fill(disk, but=left)
        told = f"of task 1 run 1 rank 0 in {root}: the disk is full"
        for _ in range(2):
            with pytest.raises(Unavailable, match=told) as refused:
                agent.say(1000)
            assert refused.value.reason == "LOG_NOT_KEPT"
            assert disk_space(disk).free < 2000
        filling.unlink()
        agent.say(100)
        restarted = Agent(root, agent.said)
        assert restarted.store.size(Key()) == sum(map(len, agent.said))
        restarted.say(100)
        lines = texts(restarted.store.read(1, max_bytes=8 << 20)[0])
    assert [int(text.split()[0]) for text in lines] == list(range(len(restarted.said)))


class Agent:
    """Sends numbered lines. Each line follows the acknowledged lines."""

    def __init__(self, root: Path, said: list[bytes] | None = None) -> None:
        self.store = LogStore(root, 1 << 30, segment_bytes=50_000)
        self.said = list(said or ())

    def say(self, count: int) -> None:
        for _ in range(count):
            number, offset = len(self.said), sum(map(len, self.said))
            chunk = line(number, f"{number} {'.' * 990}")
            assert self.store.append(Key(), offset, chunk) == offset + len(chunk)
            self.said.append(chunk)
