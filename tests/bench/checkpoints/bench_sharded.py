"""Save and load a state that is sharded over the ranks of one machine. The time falls with the number of ranks.

HAI_BENCH_STATE_GB sets the sizes, default `1`; HAI_BENCH_DIRECTORY the disk, default the temporary directory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress

from tests.bench.figures import Figure
from tests.sdk.rank_server import Ranks, serving_ranks

RANKS = (1, 2, 4)
SLOWER = 1.15  # what more ranks may take, where one rank already uses all cores or the whole disk


def figures() -> Iterator[Figure]:
    with suppress(ImportError):
        import torch  # noqa: F401 - without it there is nothing to measure

        with serving_ranks(seconds=600) as ranks:
            for gigabytes in map(float, os.environ.get("HAI_BENCH_STATE_GB", "1").split(",")):
                yield from _figures_of(ranks, gigabytes)


def _figures_of(ranks: Ranks, gigabytes: float) -> Iterator[Figure]:
    first: dict[str, float] = {}
    for world in RANKS:
        with tempfile.TemporaryDirectory(dir=os.environ.get("HAI_BENCH_DIRECTORY")) as directory:
            answers = ranks(world, "measure", folder=directory, size=int(gigabytes * (1 << 30)))
        for name, seconds in answers[0]["result"].items():
            bar = first.setdefault(name, seconds) * SLOWER if world > 1 else None
            label = f"{name}, {gigabytes:g} GB, {world} rank{'s' * (world > 1)}"
            yield Figure(label, seconds, "s", bar if name in ("save", "load") else None)
