"""Training libraries suspend and resume with the SDK, without a change of the results.

The tests use small models and the real libraries.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hai.task import checkpoint, control_file, env, staged_directory, staging, staging_buffers

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # warnings of the libraries
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(params=["direct", "staged"])
def task_world(cluster, monkeypatch, request, tmp_path):
    """In a task; go_suspend says so to the agent, then leaves by an exception instead of standing still.

    Checkpoints are written directly, or staged in memory.
    """
    torch.set_num_threads(1)
    if request.param == "staged":
        (tmp_path / "memory" / "7").mkdir(parents=True)
        monkeypatch.setenv(env.STAGING_DIR, str(tmp_path / "memory" / "7"))

    def leave() -> None:
        raise SystemExit("suspended")

    monkeypatch.setattr("hai.task.agent_channel._wait_for_termination", leave)
    yield cluster
    for buffers in staging_buffers._buffers.values():
        buffers.close()
    staging_buffers._buffers.clear()


class TestTorch:
    STEPS = 24

    def train(self, until: int | None = None, agent=None, workers: int = 0):
        from hai.task.integrations.torch import Loop, StepBatches

        torch.manual_seed(0)
        random.seed(0)
        data = torch.utils.data.TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
        model = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)
        )
        optimizer = torch.optim.Adam(model.parameters())
        batches = StepBatches(40, 8, seed=3)
        loader = torch.utils.data.DataLoader(data, batch_sampler=batches, num_workers=workers)
        loop = Loop({"model": model, "optimizer": optimizer}, batches=batches, every=10)
        loop.load()
        for step, (x, y) in zip(loop.steps(self.STEPS), loader, strict=False):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean() * random.random()
            loss.backward()
            optimizer.step()
            if step == until:
                agent.agree(0)
        return torch.cat([p.detach().flatten() for p in model.parameters()]), loop

    @pytest.mark.filterwarnings("ignore:.*use of fork")
    @pytest.mark.parametrize("workers", [0, 1])
    @pytest.mark.parametrize("at", [0, 4, 9, 15])
    def test_a_suspended_loop_ends_bit_for_bit_the_same(self, task_world, monkeypatch, at, workers):
        with pytest.raises(SystemExit, match="suspended"):
            self.train(at, task_world, workers)
        assert task_world.names[-2:] == ["checkpoint_saved", "go_suspend"]
        assert checkpoint.latest().step == at + 1
        task_world._map[control_file.FLAG] = control_file.NONE
        resumed, loop = self.train(workers=workers)
        assert loop.step == self.STEPS
        monkeypatch.setenv(env.CHECKPOINT_DIR, os.environ[env.CHECKPOINT_DIR] + "-other")
        undisturbed, _ = self.train(workers=workers)
        assert torch.equal(resumed, undisturbed)

    def test_a_checkpoint_of_torch_save_is_read(self, outside, tmp_path):
        from hai.task.integrations.torch import read

        outside.setenv(env.CHECKPOINT_DIR, str(tmp_path))
        state = {"parts": {"model": {"weight": torch.ones(3)}}, "generators": {"seed": 4}}
        checkpoint.save("model", lambda file: torch.save(state, file), step=5)
        found = read("model", 5)
        assert torch.equal(found["parts"]["model"]["weight"], torch.ones(3))
        assert found["generators"] == {"seed": 4}

    def test_each_index_comes_once_an_epoch_over_all_replicas(self, outside):
        from itertools import islice

        from hai.task.integrations.torch import StepBatches

        parts = [StepBatches(24, 3, seed=1, replica=i, replicas=2) for i in range(2)]
        assert parts[0].per_epoch == 4
        for epoch in range(2):
            for part in parts:
                part.step = 4 * epoch
            seen = [i for part in parts for batch in islice(part, 4) for i in batch]
            assert sorted(seen) == list(range(24))

    def test_resuming_in_the_middle_gives_the_same_batches(self, outside):
        from itertools import islice

        from hai.task.integrations.torch import StepBatches

        whole = list(islice(StepBatches(10, 3, seed=5), 9))
        later = StepBatches(10, 3, seed=5)
        later.step = 4
        assert list(islice(later, 5)) == whole[4:]

    def test_too_little_data_is_refused(self, outside):
        from hai.task.integrations.torch import StepBatches

        with pytest.raises(ValueError, match="5 items make no batch of 8 for 1 processes"):
            StepBatches(5, 8)

    def test_outside_the_cluster_it_only_trains(self, outside, tmp_path):
        outside.setenv(env.CHECKPOINT_DIR, str(tmp_path))
        assert self.train()[1].step == self.STEPS

    def test_tasks_that_cannot_yield_save_once_and_go_on(self, task_world, monkeypatch):
        monkeypatch.setenv(env.TASK_TYPE, "jupyter")
        assert self.train(4, task_world)[1].step == self.STEPS
        # at 5, when the suspend is requested; at 10 and 20
        assert task_world.names.count("checkpoint_saved") == 3


class TestLightning:
    @pytest.fixture(autouse=True)
    def _quiet(self, tmp_path, monkeypatch):
        pytest.importorskip("lightning", reason="lightning is not installed")
        monkeypatch.chdir(tmp_path)

    def train(self, agent=None, at: int | None = None):
        import lightning.pytorch as pl

        from hai.task.integrations.lightning import SuspendCallback
        from hai.task.integrations.torch import StepBatches

        class Model(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 1)
                self.seen = []

            def training_step(self, batch, number):
                self.seen.append(round(float(batch[0].sum()), 4))
                if agent is not None and self.global_step == at:
                    agent.agree(0)
                noise = torch.rand(4, 1)
                return (self.layer(batch[0]) * noise - batch[1]).square().mean()

            def configure_optimizers(self):
                return torch.optim.Adam(self.parameters(), lr=0.01)

        torch.manual_seed(0)
        data = torch.utils.data.TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
        batches = StepBatches(40, 4)
        loader = torch.utils.data.DataLoader(data, batch_sampler=batches)
        suspend = SuspendCallback(batches=batches, every=7)
        model = Model()
        trainer = pl.Trainer(
            accelerator="cpu", max_epochs=2, limit_train_batches=10, callbacks=[suspend], logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        try:
            trainer.fit(model, loader, ckpt_path=suspend.latest())
        finally:
            self.model = model
        return torch.cat([p.detach().flatten() for p in model.parameters()]), trainer

    @pytest.mark.parametrize("at", [3, 9, 12])
    def test_a_suspended_fit_ends_the_same(self, task_world, monkeypatch, at):
        with pytest.raises(SystemExit, match="suspended"):
            self.train(task_world, at)
        seen = self.model.seen
        assert task_world.names[-2:] == ["checkpoint_saved", "go_suspend"]
        if env.STAGING_DIR in os.environ:
            assert len(staging.pending(Path(os.environ[env.STAGING_DIR]))) > 0
        assert checkpoint.latest("lightning").step == at + 1
        task_world._map[control_file.FLAG] = control_file.NONE
        resumed, trainer = self.train()
        seen += self.model.seen
        assert trainer.global_step == 20
        monkeypatch.setenv(env.CHECKPOINT_DIR, os.environ[env.CHECKPOINT_DIR] + "-other")
        undisturbed, _ = self.train()
        assert seen == self.model.seen
        assert torch.equal(resumed, undisturbed)


class TestTransformers:
    @pytest.fixture(autouse=True)
    def _offline(self, monkeypatch):
        pytest.importorskip("transformers", reason="transformers is not installed")
        pytest.importorskip("accelerate", reason="accelerate is not installed")
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def train(self, folder: Path, agent=None, at: int | None = None):
        from transformers import (
            BertConfig,
            BertForSequenceClassification,
            Trainer,
            TrainingArguments,
        )

        from hai.task.integrations.transformers import SuspendCallback, latest

        torch.manual_seed(0)
        size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = BertConfig(vocab_size=16, intermediate_size=8, max_position_embeddings=8, **size)

        def ask(*_):
            if agent is not None and trainer.state.global_step == at:
                agent.agree(0)

        items = [
            {"input_ids": torch.randint(0, 16, (6,)), "labels": torch.tensor(i % 2)}
            for i in range(32)
        ]
        arguments = TrainingArguments(
            output_dir=str(folder), max_steps=12, per_device_train_batch_size=4, save_steps=5,
            report_to=[], use_cpu=True, disable_tqdm=True, logging_strategy="no",
            dataloader_pin_memory=False,
        )  # fmt: skip
        model = BertForSequenceClassification(config)
        model.register_forward_pre_hook(ask)
        trainer = Trainer(model, arguments, train_dataset=items, callbacks=[SuspendCallback()])
        trainer.train(resume_from_checkpoint=latest(folder))
        return torch.cat([p.detach().flatten() for p in model.parameters()]), trainer

    @pytest.mark.parametrize("at", [2, 4, 9])
    def test_a_suspended_trainer_ends_the_same(self, task_world, tmp_path, at):
        from hai.task.integrations.transformers import latest

        with pytest.raises(SystemExit, match="suspended"):
            self.train(tmp_path / "a", task_world, at)
        assert task_world.names[-2:] == ["checkpoint_saved", "go_suspend"]
        staged = env.STAGING_DIR in os.environ
        assert (tmp_path / "a" / f"checkpoint-{at + 1}").exists() != staged
        found = Path(latest(tmp_path / "a"))
        assert json.loads((found / "trainer_state.json").read_text())["global_step"] == at + 1
        assert found.parent == tmp_path / "a"
        if staged:
            assert list(Path(os.environ[env.STAGING_DIR]).iterdir()) == []  # the memory is free
        task_world._map[control_file.FLAG] = control_file.NONE
        resumed, trainer = self.train(tmp_path / "a")
        assert trainer.state.global_step == 12
        undisturbed, _ = self.train(tmp_path / "b")
        assert torch.equal(resumed, undisturbed)

    @pytest.mark.parametrize(
        ("changes", "may"),
        [
            pytest.param({}, True, id="one process"),
            pytest.param({"world_size": 2}, False, id="several processes"),
            pytest.param({"deepspeed": "ds.json"}, False, id="DeepSpeed"),
            pytest.param({"fsdp": ["full_shard"]}, False, id="FSDP"),
            pytest.param({"metric_for_best_model": "loss"}, False, id="the best is kept"),
            pytest.param({"push_to_hub": True}, False, id="it is pushed"),
        ],
    )
    def test_only_a_checkpoint_of_one_process_is_staged(self, outside, changes, may):
        from hai.task.integrations.transformers import _may_stage

        arguments = {
            "world_size": 1, "deepspeed": None, "fsdp": [], "metric_for_best_model": None,
            "load_best_model_at_end": False, "push_to_hub": False,
        }  # fmt: skip
        assert _may_stage(SimpleNamespace(**arguments | changes)) == may

    @pytest.mark.parametrize("memory", [True, False], ids=["of a later step", "lost"])
    def test_the_newest_of_both_kinds_is_used(self, outside, tmp_path, capsys, memory):
        from hai.task.integrations.transformers import _seal, latest

        stage, folder = tmp_path / "memory", tmp_path / "out"
        stage.mkdir()
        outside.setenv(env.STAGING_DIR, str(stage))
        (folder / "checkpoint-5").mkdir(parents=True)
        _seal(folder / "checkpoint-5")
        made = staged_directory.create(10, folder / "suspended")
        assert made is not None
        (made.path / "checkpoint-7").mkdir()
        (made.path / "checkpoint-7" / "state").write_bytes(b"x")
        made.stage(made.path / "checkpoint-7", folder / "suspended", 7, 2)
        if not memory:
            for path in stage.iterdir():
                path.unlink()
        found = Path(latest(folder))
        assert found.name.startswith("suspended.000000000007." if memory else "checkpoint-5")
        told = "suspended of step 7 was lost" in capsys.readouterr().err
        assert told != memory
        (folder / "checkpoint-9").mkdir()
        _seal(folder / "checkpoint-9")
        assert latest(folder) == str(folder / "checkpoint-9")

    def test_a_torn_checkpoint_is_passed_over(self, outside, tmp_path, capsys):
        from hai.task.integrations.transformers import latest

        self.train(tmp_path)
        assert latest(tmp_path) == str(tmp_path / "checkpoint-12")
        (tmp_path / "checkpoint-12" / "trainer_state.json").write_text("{")
        assert latest(tmp_path) == str(tmp_path / "checkpoint-10")
        assert "checkpoint-12 is damaged" in capsys.readouterr().err
        # as if the program was killed before it wrote the manifest
        (tmp_path / "checkpoint-10" / "hai-manifest.json").unlink()
        assert latest(tmp_path) == str(tmp_path / "checkpoint-5")


def test_integrations_load_nothing_until_used(outside):
    code = (
        "import sys, hai.task, hai.task.integrations\n"
        "assert not {'torch', 'lightning', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
