"""Ranks save their own shards, and another number of ranks loads them, also after a kill at any moment."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hai.task import sharded_checkpoint
from tests.sdk.rank_server import Ranks, serving_ranks

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with serving_ranks() as run:
        yield run


@pytest.fixture
def name(tmp_path: Path) -> str:
    return str(tmp_path / "model")


def results(answers: list[dict[str, Any]]) -> list[Any]:
    assert [answer["exit"] for answer in answers] == [0] * len(answers)
    return [answer["result"] for answer in answers]


def listing(name: str) -> list[str]:
    """Return the names in the folder of a checkpoint, without digests."""
    return sorted(
        ".".join(part for part in path.name.split(".") if len(part) < 64)
        for path in Path(name).parent.iterdir()
    )


def published(name: str) -> list[int]:
    return [found.step for found in sharded_checkpoint.published(Path(name))]


@pytest.mark.parametrize(
    ("saving", "saved_as", "loading", "loaded_as"),
    [
        (4, "fsdp", 2, "fsdp"),
        (2, "fsdp", 4, "fsdp"),
        (3, "fsdp", 1, "plain"),
        (4, "ddp", 2, "ddp"),
        (2, "ddp", 4, "ddp"),
        (1, "plain", 2, "fsdp"),
        (4, "tensor parallel", 2, "tensor parallel"),
        (2, "tensor parallel", 4, "tensor parallel"),
        (4, "fsdp and tensor parallel", 2, "fsdp and tensor parallel"),
        (2, "fsdp and tensor parallel", 4, "fsdp and tensor parallel"),
        (4, "fsdp and tensor parallel", 3, "fsdp"),
    ],
)
def test_other_ranks_load_the_same_bits(ranks, name, saving, saved_as, loading, loaded_as):
    saved = results(ranks(saving, "save_training", name=name, kind=saved_as, step=7))
    [digest] = set(saved)
    for loaded in results(ranks(loading, "load_training", name=name, kind=loaded_as)):
        assert loaded == {"step": 7, "digest": digest, "note": 1}


@pytest.mark.parametrize("kind", ["fsdp", "tensor parallel"])
def test_a_loop_that_resumes_ends_with_the_same_bits(ranks, name, kind):
    results(ranks(2, "run_loop", name=name, steps=8, leave_at=5, kind=kind))
    assert published(name) == [3]
    resumed = results(ranks(2, "run_loop", name=name, steps=8, kind=kind))
    assert published(name) == [3, 6]
    other = f"{name}-other"
    assert results(ranks(2, "run_loop", name=other, steps=8, kind=kind)) == resumed
    shorter = results(ranks(2, "run_loop", name=f"{name}-shorter", steps=7, kind=kind))
    assert shorter != resumed


def test_a_loop_goes_on_with_more_ranks(ranks, name):
    saved = results(ranks(2, "run_loop", name=name, steps=6))
    loaded = results(ranks(4, "run_loop", name=name, steps=6))
    assert set(loaded) == set(saved)


def test_a_loop_does_not_lose_shards_in_silence(ranks, name):
    assert "is sharded over ranks" in results(ranks(2, "save_shards_from_one_rank", name=name))[0]


def test_a_sharded_loop_refuses_an_optimizer_alone():
    from hai.task.integrations.torch import Loop

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
    with pytest.raises(TypeError, match="pass TrainingState"):
        Loop({"optimizer": optimizer}, sharded=True)


@pytest.mark.parametrize("block_bytes", [64, 1000, None], ids="blocks of {} bytes".format)
@pytest.mark.parametrize(("saving", "loading"), [(2, 2), (4, 2), (2, 3)], ids="{} ranks".format)
def test_every_kind_of_tensor_and_value_is_kept(ranks, name, saving, loading, block_bytes):
    saved = results(ranks(saving, "save_tensors", name=name, step=3, block_bytes=block_bytes))
    loaded = results(ranks(loading, "load_tensors", name=name))
    assert {(each["step"], each["digest"]) for each in loaded} == {(3, saved[0])}


def test_one_process_needs_no_process_group(ranks, name):
    [digest] = results(ranks(1, "save_tensors", name=name, step=3))
    assert results(ranks(1, "load_tensors", name=name))[0]["digest"] == digest


def test_a_rank_reads_only_its_own_shards(ranks, name):
    results(ranks(4, "save_tensors", name=name, step=3))
    loaded = results(ranks(4, "load_tensors", name=name, only="rows"))
    assert [each["opened"] for each in loaded] == [[f"rank{rank:05d}.bin"] for rank in range(4)]


def test_without_a_checkpoint_the_state_stays(ranks, name):
    [first, _] = results(ranks(2, "load_tensors", name=name))
    assert first["step"] is None


def test_the_reader_of_a_program_that_calls_load_itself(ranks, name):
    [digest, _] = results(ranks(2, "save_tensors", name=name, step=3))
    assert results(ranks(2, "load_by_reader", name=name)) == [digest, digest]


def test_the_whole_state_in_one_process(ranks, name):
    [digest, _] = results(ranks(2, "save_tensors", name=name, step=3))
    assert results(ranks(1, "export", name=name)) == [digest]


@pytest.mark.parametrize("plan_caching", [False, True], ids="plan caching {}".format)
def test_steps_of_one_process(ranks, name, plan_caching):
    steps = [1, 2, 9, 4]
    [digests, _] = results(
        ranks(2, "save_again", name=name, steps=steps, plan_caching=plan_caching)
    )
    loaded = results(ranks(2, "load_tensors", name=name))
    assert [each["digest"] for each in loaded] == [digests[-1]] * 2
    assert published(name) == [2, 4]
    assert listing(name)[-1] == "model.000000000009.dcp.abandoned"


def test_saving_in_the_background(ranks, name):
    [digest, _] = results(ranks(2, "save_async", name=name, step=5))
    assert results(ranks(2, "load_tensors", name=name))[0]["digest"] == digest


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?"), id="changed"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:100]), id="torn"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes() + b"\0"), id="longer"),
        pytest.param(lambda path: path.unlink(), id="missing"),
    ],
)
@pytest.mark.parametrize("file", ["rank00000.bin", "rank00001.bin", "manifest.json"])
def test_all_ranks_load_the_one_before_a_damaged_one(ranks, name, file, harm):
    [digest, _] = results(ranks(2, "save_tensors", name=name, step=1))
    results(ranks(2, "save_tensors", name=name, step=2))
    harm(sharded_checkpoint.published(Path(name))[-1].path / file)
    loaded = results(ranks(2, "load_tensors", name=name))
    assert {(each["step"], each["digest"]) for each in loaded} == {(1, digest)}
    assert listing(name) == ["model.000000000001.dcp", "model.000000000002.dcp.damaged"]


def test_if_all_are_damaged_the_run_ends_and_the_next_one_begins_anew(ranks, name):
    results(ranks(2, "save_tensors", name=name, step=1))
    path = sharded_checkpoint.published(Path(name))[0].path / "rank00001.bin"
    path.write_bytes(bytes(path.stat().st_size))
    assert [answer["exit"] for answer in ranks(2, "load_tensors", name=name)] == [1, 1]
    assert results(ranks(2, "load_tensors", name=name))[0]["step"] is None


def test_a_rank_that_does_not_see_the_directory_says_so(ranks, name, monkeypatch, tmp_path):
    errors = results(ranks(2, "save_on_other_storage", folder=str(tmp_path)))
    for error in errors:
        assert "keep checkpoints on storage that all ranks share" in error
    assert list(tmp_path.glob("*/model*")) == []


@pytest.mark.parametrize("failing_rank", [0, 1])
def test_a_save_after_a_failed_one_removes_its_files(ranks, name, failing_rank):
    answers = results(ranks(2, "fail_then_save", name=name, failing_rank=failing_rank))
    for error, digest in answers:
        assert "No space left on device" in error
        assert results(ranks(2, "load_tensors", name=name))[0]["digest"] == digest
    assert listing(name) == ["model.000000000002.dcp"]


@pytest.mark.parametrize("rank", [0, 1], ids="rank {}".format)
@pytest.mark.parametrize(
    "earlier", [pytest.param(1, id="going on"), pytest.param(9, id="going back")]
)
def test_a_kill_at_any_operation_leaves_an_intact_latest(ranks, tmp_path, earlier, rank):
    """Kill a rank before each of its operations on files. Load, and save again."""
    killed = []
    for number in range(100):
        name = str(tmp_path / str(number) / "model")
        [old, _] = results(ranks(2, "save_tensors", name=name, step=earlier))
        answers = ranks(2, "save_tensors", name=name, step=2, keep=1, killed=[rank, number])
        if answers[rank]["exit"] == 0:
            break
        assert answers[rank]["exit"] == -signal.SIGKILL
        killed.append(number)
        loaded = results(ranks(2, "load_tensors", name=name))
        [new, _] = results(ranks(2, "save_tensors", name=str(tmp_path / "other"), step=2))
        assert {(each["step"], each["digest"]) for each in loaded} <= {(earlier, old), (2, new)}
        results(ranks(2, "save_tensors", name=name, step=3, keep=1))
        left = [entry for entry in listing(name) if not entry.endswith(".abandoned")]
        assert left == ["model.000000000003.dcp"]
    # rank 0 also creates the directory, writes and publishes the manifest, and deletes the one before
    assert len(killed) >= (3 if rank else 10)
    assert published(name) == [2]
