"""Use of many ranks as one series: sums, means, and what was measured in two runs at the same moment."""

from __future__ import annotations

from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from hai.v1.usage_service_pb2 import RankUsage, UsagePoint
from hai_jupyter.usage import together


def point(time: int, cpus: float, count: int = 1, **gpus: Any) -> UsagePoint:
    now = Timestamp(seconds=time)
    return UsagePoint(time=now, cpus=cpus, memory_bytes=int(cpus * 100), count=count, **gpus)


def test_ranks_are_summed_and_shares_of_gpus_are_means() -> None:
    ranks = [
        RankUsage(rank=0, run=1, points=[point(60, 1, gpu_utilisation=0.2, gpu_memory_bytes=5)]),
        RankUsage(
            rank=1,
            run=1,
            points=[point(60, 2, gpu_utilisation=0.6, gpu_memory_bytes=7), point(120, 4)],
        ),
    ]
    assert together(ranks) == [[60, 3, 300, 0.4, 12], [120, 4, 400, None, None]]


def test_a_rank_that_was_started_again_counts_once() -> None:
    ranks = [
        RankUsage(rank=0, run=1, points=[point(60, 1, count=3)]),
        RankUsage(rank=0, run=2, points=[point(60, 5, count=1)]),
        RankUsage(rank=1, run=2, points=[point(60, 1)]),
    ]
    assert together(ranks) == [[60, 3, 300, None, None]]


def test_one_rank_needs_no_sum() -> None:
    assert together([RankUsage(rank=0, run=run, points=[point(60, 1)]) for run in (1, 2)]) == []
