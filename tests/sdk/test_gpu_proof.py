"""The proof for machines with a GPU (tests/gpu/run): its claims, and a dry run without a GPU."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

FILE = Path(__file__).parents[1] / "gpu/run"
STEPS = 6
BEFORE = [{"started": 1.0, "load": 0.0, "at": 0}, *({"step": i, "time": 2.0 + i} for i in range(3))]
AFTER = [
    {"started": 9.0, "load": 0.5, "at": 3},
    *({"step": i, "time": 10.0 + i} for i in range(3, 6)),
]
FROM_ZERO = [{"started": 9.0, "load": 0.5, "at": 0}, *({"step": i, "time": 9.0} for i in range(6))]


@pytest.fixture(scope="module")
def proof() -> ModuleType:
    loader = SourceFileLoader("gpu_proof", str(FILE))
    spec = importlib.util.spec_from_loader("gpu_proof", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def a_proof(proof: ModuleType, home: Path, events: tuple[str, ...] = ()) -> Any:
    """Return a proof whose LOW task has these events, one second apart."""

    async def all_events(id: int) -> list[Any]:
        return [
            SimpleNamespace(kind=kind, time=Timestamp(seconds=i)) for i, kind in enumerate(events)
        ]

    client = SimpleNamespace(tasks=SimpleNamespace(events=all_events))
    options = argparse.Namespace(steps=STEPS, bound=1.0)
    return proof.Proof(client, home, 0, options, {}, {})


@pytest.mark.parametrize(
    ("lines", "digest", "events", "failed"),
    [
        pytest.param([*BEFORE, *AFTER], "a", ("SuspendAsked", "Yielded"), set(), id="as it should be"),
        pytest.param(
            [*BEFORE, *AFTER], "b", ("SuspendAsked", "Yielded"), {"bit_identical"}, id="other result"
        ),
        pytest.param(
            [*BEFORE, *FROM_ZERO],
            "a",
            ("SuspendAsked",),
            {"suspended_with_default_settings", "resumed_at_the_right_step"},
            id="ended while it saved, and began again",
        ),
        pytest.param(
            [*BEFORE, {"started": 9.0, "load": 0.5, "at": 2}, {"step": 2, "time": 9.0}, *AFTER[1:]],
            "a",
            ("SuspendAsked", "Yielded"),
            {"resumed_at_the_right_step"},
            id="a step twice",
        ),
        pytest.param(
            [BEFORE[0], *({"step": i, "time": 2.0} for i in range(6))],
            "a",
            (),
            {"suspended_with_default_settings", "resumed_at_the_right_step"},
            id="never suspended",
        ),
    ],
)  # fmt: skip
def test_the_claims_about_low(
    proof: ModuleType,
    tmp_path: Path,
    lines: list[dict[str, float]],
    digest: str,
    events: tuple[str, ...],
    failed: set[str],
) -> None:
    facts = {"parameters": 1, "state_bytes": 12}
    (tmp_path / "low.json").write_text(json.dumps({**facts, "digest": digest}))
    (tmp_path / "undisturbed.json").write_text(json.dumps({**facts, "digest": "a"}))
    (tmp_path / "low.steps").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    judged = a_proof(proof, tmp_path, events)
    asyncio.run(judged._judge_low(1))
    assert {name for name, claim in judged.claims.items() if claim == "FAIL"} == failed
    assert len(judged.claims) == 3


@pytest.mark.parametrize(
    ("seconds", "idle", "used", "claims"),
    [
        pytest.param(5.9, 0, 0, ["PASS", "PASS"], id="in time, all memory free"),
        pytest.param(6.1, 0, 0, ["FAIL", "PASS"], id="late"),
        pytest.param(5.9, 1 << 30, 3 << 30, ["PASS", "FAIL"], id="memory in use"),
        pytest.param(5.9, None, None, ["PASS", "SKIP"], id="no GPU"),
    ],
)
def test_the_claims_about_high(
    proof: ModuleType,
    tmp_path: Path,
    seconds: float,
    idle: int | None,
    used: int | None,
    claims: list[str],
) -> None:
    judged = a_proof(proof, tmp_path)
    judged._judge_high({"seconds": seconds, "used_before": used}, {"seconds": 5.0}, idle)
    assert list(judged.claims.values()) == claims


@pytest.mark.torch
@pytest.mark.timeout(300)
def test_a_dry_run_needs_no_gpu(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    done = subprocess.run(
        [sys.executable, FILE, "--directory", tmp_path], capture_output=True, text=True
    )
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert (done.returncode, result["result"]) == (0, "PASS"), done.stderr
    assert {name for name, claim in result["claims"].items() if claim == "PASS"} >= {
        "suspended_with_default_settings",
        "resumed_at_the_right_step",
        "bit_identical",
        "high_first_kernel_in_time",
    }
    assert result["suspended_at_step"] > 0
    assert not list(tmp_path.iterdir()), "the private server leaves nothing behind"
