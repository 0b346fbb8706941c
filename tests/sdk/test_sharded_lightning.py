"""Lightning with a model that is sharded over ranks: each rank saves its shards, and a resumed run ends the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hai.task import env, sharded_checkpoint

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

PROGRAM = """
import sys
import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard
from hai.task.integrations.lightning import SuspendCallback

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Dropout(0.2), torch.nn.Linear(6, 1))

    def configure_model(self):
        fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, number):
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.1)

class Stopped(SuspendCallback):
    def _save(self, trainer):
        super()._save(trainer)
        if sys.argv[1] == "stop":
            raise SystemExit

pl.seed_everything(3, verbose=False)
data = torch.utils.data.TensorDataset(torch.randn(48, 4))
suspend, model = Stopped(every=5), Model()
strategy = ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1, process_group_backend="gloo")
trainer = pl.Trainer(
    accelerator="cpu", devices=2, strategy=strategy, max_epochs=2, callbacks=[suspend], logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
path = suspend.latest()
trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=3, shuffle=True), ckpt_path=path)
parameters = [p.full_tensor().flatten().tolist() for p in model.parameters()]
with open(f"end{trainer.global_rank}", "w") as file:
    print(bool(path), trainer.global_step, parameters, file=file)
"""


def run(folder: Path, how: str) -> None:
    folder.mkdir(exist_ok=True)
    script = folder / "train.py"
    script.write_text(PROGRAM)
    variables = {**os.environ, env.CHECKPOINT_DIR: str(folder / "kept"), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, script, how], cwd=folder, env=variables, check=True)


def test_a_resumed_run_ends_with_the_same_bits(tmp_path):
    run(tmp_path / "stopped", "stop")
    target = tmp_path / "stopped" / "kept" / "lightning"
    saved = sharded_checkpoint.latest_complete(target)
    assert saved.step == 5
    assert {"__0_0.distcp", "__1_0.distcp"} < {path.name for path in saved.path.iterdir()}
    run(tmp_path / "stopped", "go on")
    run(tmp_path / "undisturbed", "go on")
    for rank in (0, 1):
        resumed = (tmp_path / "stopped" / f"end{rank}").read_text()
        undisturbed = (tmp_path / "undisturbed" / f"end{rank}").read_text()
        assert resumed.startswith("True 16 ")
        assert undisturbed.startswith("False 16 ")
        assert resumed.split(maxsplit=2)[2] == undisturbed.split(maxsplit=2)[2]
    assert [found.step for found in sharded_checkpoint.published(target)] == [10, 15]
