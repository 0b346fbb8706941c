"""Sharded checkpoints are staged in memory together, and written by one process, which may be killed at any moment."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hai.task import env, sharded_checkpoint, staging
from hai_backend.launch import checkpoint_writer
from tests.sdk.rank_server import Ranks, serving_ranks

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]
Staged = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with serving_ranks() as run:
        yield run


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    (tmp_path / "memory" / "7").mkdir(parents=True)
    return tmp_path / "memory" / "7"


@pytest.fixture
def run(ranks: Ranks, memory: Path) -> Staged:
    """Runs an action in a task that stages its checkpoints, and returns the results of its ranks."""

    def run(world: int, action: str, /, **arguments: Any) -> list[Any]:
        variables = {env.STAGING_DIR: str(memory), **arguments.pop("variables", {})}
        answers = ranks(world, action, variables=variables, **arguments)
        assert [answer["exit"] for answer in answers] == [0] * len(answers)
        return [answer["result"] for answer in answers]

    return run


@pytest.fixture
def name(tmp_path: Path) -> str:
    return str(tmp_path / "kept" / "model")


def published(name: str) -> list[int]:
    return [found.step for found in sharded_checkpoint.published(Path(name))]


def staged(memory: Path) -> list[int]:
    return [found.step for found in staging.pending(memory)]


def kinds(memory: Path) -> list[str]:
    return sorted(path.suffix for path in memory.iterdir())


@pytest.mark.parametrize(("saving", "loading"), [(2, 2), (4, 2), (2, 3), (1, 1)])
def test_other_ranks_load_what_was_staged(run, name, memory, saving, loading):
    saved = run(saving, "save_tensors", name=name, step=3)
    assert (staged(memory), published(name)) == ([3], [])
    assert kinds(memory) == [*[".data"] * saving, ".json"]
    loaded = run(loading, "load_tensors", name=name)
    assert {(each["step"], each["digest"]) for each in loaded} == {(3, saved[0])}
    assert (kinds(memory), published(name)) == ([], [3])


def test_the_writer_makes_it_durable(run, name, memory):
    [digest, _] = run(2, "save_tensors", name=name, step=3)
    checkpoint_writer.main([str(memory.parent)])
    assert (kinds(memory), published(name)) == ([], [3])
    assert run(2, "load_tensors", name=name, variables={env.STAGING_DIR: ""})[0]["digest"] == digest


@pytest.mark.parametrize("plan_caching", [False, True], ids="plan caching {}".format)
def test_steps_of_one_process(run, name, memory, plan_caching):
    [digests, _] = run(2, "save_again", name=name, steps=[1, 2, 9, 4], plan_caching=plan_caching)
    assert staged(memory) == [1, 2, 9, 4]
    assert run(2, "load_tensors", name=name)[0]["digest"] == digests[-1]
    assert published(name) == [2, 4]


@pytest.mark.parametrize("limit", [1, 20_000])
def test_too_little_memory_writes_directly_and_in_order(run, name, memory, limit):
    variables = {env.STAGING_BYTES: str(limit)}
    arguments = {"steps": [1, 2, 3], "plan_caching": False}
    [digests, _] = run(2, "save_again", name=name, variables=variables, **arguments)
    assert (staged(memory), published(name)) == ([], [2, 3])
    assert run(2, "load_tensors", name=name)[0]["digest"] == digests[-1]


@pytest.mark.parametrize("kind", ["fsdp", "tensor parallel"])
def test_a_loop_that_resumes_ends_with_the_same_bits(run, name, memory, kind):
    run(2, "run_loop", name=name, steps=8, leave_at=5, kind=kind)
    assert set(staged(memory)) == {3}
    resumed = run(2, "run_loop", name=name, steps=8, kind=kind)
    assert run(2, "run_loop", name=f"{name}-other", steps=8, kind=kind) == resumed


@pytest.mark.parametrize("rank", [0, 1], ids="rank {}".format)
def test_a_kill_at_any_operation_of_a_save_leaves_an_intact_latest(
    ranks, run, tmp_path, memory, rank
):
    killed = []
    variables = {env.STAGING_DIR: str(memory)}
    for number in range(100):
        name = str(tmp_path / str(number) / "model")
        [old, _] = run(2, "save_tensors", name=name, step=1)
        checkpoint_writer.main([str(memory.parent)])
        answers = ranks(
            2, "save_tensors", name=name, step=2, killed=[rank, number], variables=variables
        )
        if answers[rank]["exit"] == 0:
            break
        assert answers[rank]["exit"] == -signal.SIGKILL
        killed.append(number)
        staging.remove_unused(memory)
        loaded = run(2, "load_tensors", name=name)
        [new, _] = run(2, "save_tensors", name=str(tmp_path / "other"), step=2)
        assert {(each["step"], each["digest"]) for each in loaded} <= {(1, old), (2, new)}
        run(2, "save_tensors", name=name, step=3)
        checkpoint_writer.main([str(memory.parent)])
        staging.remove_unused(memory)
        assert published(name)[-1] == 3
        assert set(kinds(memory)) <= {".part", ".shards"}
    assert len(killed) >= (1 if rank else 4)


def test_a_kill_at_any_operation_of_the_writer_loses_nothing(ranks, run, tmp_path, memory):
    for number in range(100):
        name = str(tmp_path / str(number) / "model")
        run(2, "save_tensors", name=name, step=1)
        checkpoint_writer.main([str(memory.parent)])
        [new, _] = run(2, "save_tensors", name=name, step=2)
        answers = ranks(1, "write_out", memory=str(memory), killed=[0, number])
        loaded = run(2, "load_tensors", name=name)
        assert {(each["step"], each["digest"]) for each in loaded} == {(2, new)}
        staging.remove_unused(memory)
        assert (published(name), kinds(memory)) == ([1, 2], [])
        assert len(list(Path(name).parent.iterdir())) == 2
        if answers[0]["exit"] == 0:
            break
        assert answers[0]["exit"] == -signal.SIGKILL
    assert number >= 10
