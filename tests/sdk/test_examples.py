"""The examples run outside a task, simulated, and as ranks of a task. After a suspend, they end with the same loss."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from hai.task import env
from tests.ports import free_port

pytest.importorskip("numpy", reason="the example needs numpy")

EXAMPLES = Path(__file__).parents[2] / "examples"
TUTORIAL = EXAMPLES.parent / "docs/tutorial-ddp.md"
STEPS = ["--steps", "300", "--checkpoint-every", "40"]


class Runs:
    """Starts examples in `folder` and reads their results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "out.json"

    def start(
        self,
        *arguments: str,
        file: str = "train_numpy.py",
        starter: Sequence[str] = (),
        **variables: str,
    ) -> subprocess.Popen[str]:
        base = {k: v for k, v in os.environ.items() if not k.startswith(("HAI_", "HFAI_", "PET_"))}
        argv = [*starter, str(EXAMPLES / file), *STEPS, "--out", str(self.out), *arguments]
        return subprocess.Popen(
            [sys.executable, *argv],
            env={**base, env.CHECKPOINT_DIR: str(self.folder / "kept"), **variables},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
        )

    def finish(self, *arguments: str, **options: str) -> str:
        program = self.start(*arguments, **options)
        said = program.communicate(timeout=60)[0]
        assert program.returncode == 0, said
        return said

    @property
    def final_loss(self) -> str:
        loss: str = json.loads(self.out.read_text())["final_loss"]
        return loss


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    runs = Runs(tmp_path_factory.mktemp("undisturbed"))
    runs.finish()
    result = json.loads(runs.out.read_text())
    assert float.fromhex(result["final_loss"]) == result["loss"] < 0.1
    assert result["steps"] == 300
    return runs.final_loss


def test_simulated_suspensions_change_nothing(runs, undisturbed):
    said = runs.finish(HFAI_SIMULATE="1", SIMULATE_SUSPEND="0")
    assert "suspended before step 0" in said
    said = runs.finish("--step-seconds", "0.002", HFAI_SIMULATE="1", SIMULATE_SUSPEND="0.2")
    assert "suspended before step" in said
    assert "resumed at step" in runs.finish(HFAI_SIMULATE="1")
    assert runs.final_loss == undisturbed


def test_a_killed_run_goes_on_from_its_last_checkpoint(runs, undisturbed):
    program = runs.start("--step-seconds", "0.002")
    assert program.stdout is not None
    for line in program.stdout:
        if line.startswith("step 80"):
            break
    program.kill()
    program.communicate()
    assert "starting" not in runs.finish()
    assert runs.final_loss == undisturbed


def test_two_ranks_of_a_task_leave_at_one_step(runs, undisturbed, fake_agent):
    own = [{**fake_agent.environ, env.RANK: str(i), env.LOCAL_RANK: str(i)} for i in range(2)]
    paces = ("0.004", "0.009")
    ranks = [
        runs.start("--step-seconds", pace, **variables)
        for pace, variables in zip(paces, own, strict=True)
    ]
    fake_agent.wait_for("checkpoint_saved")
    fake_agent.ask()
    fake_agent.wait_for("suspend_received", count=2)  # both wait, so their steps do not change
    stop = max(fake_agent.step(i) for i in range(2)) + 1
    fake_agent.agree(stop)
    fake_agent.wait_for("go_suspend")
    for program in ranks:
        assert f"suspended before step {stop}\n" in program.stdout
        program.send_signal(signal.SIGTERM)
        program.communicate(timeout=30)
    assert fake_agent.names.count("go_suspend") == 1
    assert f"resumed at step {stop} of 300" in runs.finish()
    assert runs.final_loss == undisturbed


@pytest.mark.parametrize("file", ["task.yml", "ddp.yml"])
def test_task_files_name_what_exists(file):
    spec = yaml.safe_load((EXAMPLES / file).read_text())
    assert spec["version"] == 2
    assert (EXAMPLES.parent / spec["spec"]["entrypoint"]).is_file()
    assert "(" not in spec["name"]


def test_the_tutorial_shows_lines_of_the_program():
    blocks = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    program = (EXAMPLES / "train_ddp.py").read_text()
    assert len(blocks) >= 5
    assert [block for block in blocks if block not in program] == []


class Gang:
    """Two ranks of train_ddp.py, which are started in the way of HAI or of torchrun."""

    STYLES = {  # noqa: RUF012
        "HAI": ([], "MASTER", {"RANK": "{}", "WORLD_SIZE": "2"}),
        "torchrun": (
            ["-m", "torch.distributed.run"],
            "PET_MASTER",
            {"PET_NNODES": "2", "PET_NODE_RANK": "{}", "PET_NPROC_PER_NODE": "1"},
        ),
    }

    def __init__(self, runs: Runs, style: str, **variables: str) -> None:
        starter, master, per_rank = self.STYLES[style]
        shared = {f"{master}_ADDR": "127.0.0.1", f"{master}_PORT": str(free_port()), **variables}
        self.programs = [
            runs.start(
                file="train_ddp.py",
                starter=starter,
                OMP_NUM_THREADS="1",
                **shared,
                **{name: value.format(rank) for name, value in per_rank.items()},
            )
            for rank in range(2)
        ]

    def finish(self) -> None:
        for program in self.programs:
            said = program.communicate(timeout=120)[0]
            assert program.returncode == 0, said

    def end(self) -> None:
        for program in self.programs:
            program.terminate()
            program.communicate(timeout=60)


@pytest.mark.torch
@pytest.mark.timeout(240)
@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed")
def test_ddp_suspended_under_torchrun_goes_on_in_hai_style(runs, tmp_path, fake_agent):
    pytest.importorskip("sklearn", reason="the example needs scikit-learn")
    Gang(runs, "HAI").finish()
    other = Runs(tmp_path / "suspended")
    other.folder.mkdir()
    gang = Gang(other, "torchrun", **fake_agent.environ)
    fake_agent.wait_for("checkpoint_saved", count=3)
    fake_agent.agree(0)
    fake_agent.wait_for("go_suspend", count=2)  # each rank calls it after both have saved
    gang.end()
    Gang(other, "HAI").finish()
    assert other.final_loss == runs.final_loss
