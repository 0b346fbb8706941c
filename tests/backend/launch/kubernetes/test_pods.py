"""The facts that are read from a pod that was created from our manifests."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from hai_backend.kube_cache.source import Body
from hai_backend.launch.base import RankKey
from hai_backend.launch.kubernetes.pods import read_pod
from hai_backend.launch.manifests.names import FENCE_AFTER

MANIFESTS = Path(__file__).parents[3] / "testdata" / "manifests"


@pytest.fixture
def body() -> Body:
    objects = yaml.safe_load_all((MANIFESTS / "cpu.yaml").read_text())
    pod: Body = next(each for each in objects if each["kind"] == "Pod")
    pod["metadata"]["uid"] = "u1"
    return pod


def test_a_pod_tells_its_rank_and_the_fence_that_its_agent_knows(body: Body) -> None:
    seen = read_pod(body)
    assert isinstance(seen.key, RankKey)
    assert seen.fence_after == 600.0


@pytest.mark.parametrize(
    ("annotations", "fence_after"),
    [
        pytest.param({}, 0.0, id="of an older version"),
        pytest.param({FENCE_AFTER: "soon"}, 0.0, id="not a number"),
        pytest.param({FENCE_AFTER: "0"}, math.inf, id="an agent that never ends by itself"),
        pytest.param({FENCE_AFTER: "30.5"}, 30.5, id="a number"),
    ],
)
def test_the_fence_of_a_pod(body: Body, annotations: dict[str, str], fence_after: float) -> None:
    body["metadata"]["annotations"] = annotations
    assert read_pod(body).fence_after == fence_after
