"""A plain DataLoader with Lightning. After a suspend, training continues with the next sample and equal results."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hai.task import control_file, env
from tests.sdk.test_integrations import task_world

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pl: Any = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore"),  # warnings of the libraries
]
__all__ = ["task_world"]
BATCHES = 8  # per epoch


class Items(torch.utils.data.Dataset):
    """Samples for 8 batches of 3, where the last batch is incomplete. Each sample is its number."""

    def __init__(self, size: int = 3 * BATCHES - 1) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), float(index)), index


class Stream(torch.utils.data.IterableDataset):
    """A data set without an order that can be saved."""

    def __iter__(self) -> Iterator[Any]:
        return (Items()[index] for index in range(24))


class Batches:
    """A loader that is not a DataLoader."""

    def __iter__(self) -> Iterator[Any]:
        return iter(loader())


class Model(pl.LightningModule):
    def __init__(self, agent: Any = None, at: int | None = None) -> None:
        super().__init__()
        self.agent, self.at, self.ids = agent, at, []
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)
        )

    def training_step(self, batch: Any, number: int) -> Any:
        items, ids = batch
        self.ids.append(ids.tolist())
        if self.agent is not None and self.global_step == self.at:
            self.agent.agree(0)
        return self.layers(items / 24).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def loader(data: Any = None, **options: Any) -> Any:
    return torch.utils.data.DataLoader(
        Items() if data is None else data, batch_size=3, **{"shuffle": data is None, **options}
    )


def fit(loader_of: Any, agent: Any = None, at: int | None = None, **options: Any) -> Any:
    """Train two epochs, or the rest of them. Return the trained ids and the final parameters."""
    from hai.task.integrations.lightning import SuspendCallback

    pl.seed_everything(3, verbose=False)
    suspend, model = SuspendCallback(), Model(agent, at)
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=2, callbacks=[suspend], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, **options,
    )  # fmt: skip
    try:
        trainer.fit(model, loader_of(), ckpt_path=suspend.latest())
    except SystemExit:
        assert agent is not None
    return model.ids, torch.cat([p.detach().flatten() for p in model.parameters()])


LOADERS = {
    "shuffled": loader,
    "with workers": lambda: loader(num_workers=2),
    "with workers that stay": lambda: loader(num_workers=2, persistent_workers=True),
    "in order": lambda: loader(shuffle=False),
    "with a generator of its own": lambda: loader(generator=torch.Generator().manual_seed(7)),
    "drawn by weight": lambda: loader(
        shuffle=False,
        sampler=torch.utils.data.WeightedRandomSampler([1.0 + i for i in range(23)], 23),
    ),
    "whole batches only": lambda: loader(drop_last=True),
}


@pytest.fixture
def undisturbed(task_world, tmp_path, monkeypatch):
    """What `fit` answers where nobody suspends it."""

    def run(loader_of: Any, **options: Any) -> Any:
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv(env.CHECKPOINT_DIR, str(tmp_path / "undisturbed"))
            return fit(loader_of, **options)

    monkeypatch.chdir(tmp_path)
    return run


@pytest.mark.parametrize("at", [0, 4, BATCHES - 1, BATCHES + 2])
@pytest.mark.parametrize("kind", LOADERS)
def test_training_goes_on_with_the_next_sample(task_world, undisturbed, kind, at, capsys):
    before, _ = fit(LOADERS[kind], task_world, at)
    assert len(before) == at + 1
    task_world._map[control_file.FLAG] = control_file.NONE
    after, parameters = fit(LOADERS[kind])
    ids, expected = undisturbed(LOADERS[kind])
    assert before + after == ids
    assert torch.equal(parameters, expected)
    assert "samples" not in capsys.readouterr().err


def test_a_second_suspension_is_as_exact(task_world, undisturbed):
    ids = []
    for at in (2, 5, 11):
        ids += fit(LOADERS["with workers"], task_world, at)[0]
        task_world._map[control_file.FLAG] = control_file.NONE
    rest, parameters = fit(LOADERS["with workers"])
    expected = undisturbed(LOADERS["with workers"])
    assert ids + rest == expected[0]
    assert torch.equal(parameters, expected[1])


@pytest.mark.parametrize(
    ("loader_of", "words"),
    [
        pytest.param(lambda: loader(Stream()), "Stream is an IterableDataset", id="a stream"),
        pytest.param(Batches, "come from a Batches", id="no loader"),
        pytest.param(lambda: [loader(), loader()], "several training loaders", id="several"),
    ],
)
def test_what_cannot_be_kept_is_said_when_training_starts(undisturbed, loader_of, words, capsys):
    from hai.task.integrations.lightning import SuspendCallback

    class Quiet(Model):
        def training_step(self, batch: Any, number: int) -> Any:
            said.append(capsys.readouterr().err)
            raise SystemExit

    said: list[str] = []
    trainer = pl.Trainer(
        accelerator="cpu", callbacks=[SuspendCallback()], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    with pytest.raises(SystemExit):
        trainer.fit(Quiet(), loader_of())
    assert words in said[0]
    assert "reads its data from the beginning again" in said[0]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(lambda: loader(Items(20), shuffle=True), id="other data"),
        pytest.param(lambda: loader(shuffle=False), id="another order"),
    ],
)
def test_an_order_that_cannot_be_repeated_is_noticed(task_world, undisturbed, changed, capsys):
    fit(loader, task_world, 3)
    task_world._map[control_file.FLAG] = control_file.NONE
    fit(changed)
    assert "some samples of this epoch may be seen twice" in capsys.readouterr().err


RANKS = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.sdk.test_data_order import Items, Model, loader, pl
from hai.task.integrations.lightning import SuspendCallback

class Stopped(SuspendCallback):
    def _save(self, trainer):
        super()._save(trainer)
        if sys.argv[4] == "stop":
            raise SystemExit

pl.seed_everything(3, verbose=False)
suspend, model = Stopped(every=int(sys.argv[3])), Model()
trainer = pl.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, callbacks=[suspend], logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
try:
    trainer.fit(model, loader(Items(48), shuffle=True, num_workers=int(sys.argv[2])), ckpt_path=suspend.latest())
finally:
    parameters = [float(p.double().sum()).hex() for p in model.parameters()]
    with open(f"rank{trainer.global_rank}", "a") as file:
        print(*model.ids, sep="\\n", file=file)
    with open(f"end{trainer.global_rank}", "w") as file:
        print(*parameters, file=file)
"""


@pytest.mark.parametrize(("workers", "at"), [(0, 3), (2, 11)])
def test_several_ranks_go_on_with_their_next_samples(tmp_path, workers, at):
    script = tmp_path / "train.py"
    script.write_text(RANKS)

    def run(folder: Path, how: str) -> None:
        folder.mkdir(exist_ok=True)
        root = Path(__file__).parents[2]
        command = [sys.executable, str(script), str(root), str(workers), str(at), how]
        variables = {**os.environ, env.CHECKPOINT_DIR: str(folder / "kept"), "OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=folder, env=variables, check=True, capture_output=True)

    run(tmp_path / "stopped", "stop")
    run(tmp_path / "stopped", "go on")
    run(tmp_path / "undisturbed", "go on")
    for name in ("rank0", "rank1", "end0", "end1"):
        assert (tmp_path / "stopped" / name).read_text() == (
            tmp_path / "undisturbed" / name
        ).read_text()
    ranks = [(tmp_path / "stopped" / f"rank{rank}").read_text().split("\n") for rank in (0, 1)]
    assert ranks[0] != ranks[1]
