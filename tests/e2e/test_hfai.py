"""Programs like HAI's published examples, which `import hfai`, as real tasks."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hai.v1.task_pb2 import TaskOutcome
from tests.support.deployment import Deployment, process_deployment
from tests.support.environments import layer_of, make_environment

SUCCEEDED = TaskOutcome.TASK_OUTCOME_SUCCEEDED

# An image classifier. It checks for suspension after each batch. The whole-life state counts epochs.
CLASSIFIER = """
import json, os, sys, time
import hfai
import hfai.client

saved = sys.argv[1]
state = json.load(open(saved)) if os.path.exists(saved) else {"epoch": 0, "batch": 0}
epoch = hfai.client.get_whole_life_state() or 0
print("begins at", state["epoch"], state["batch"], "life", epoch, flush=True)
hfai.client.set_watchdog_time(3600)
for epoch in range(state["epoch"], 2):
    for batch in range(state["batch"], 40):
        time.sleep(0.02)
        if hfai.client.receive_suspend_command():
            json.dump({"epoch": epoch, "batch": batch + 1}, open(saved, "w"))
            hfai.client.set_whole_life_state(epoch + 100)
            time.sleep(0.1)
            hfai.client.go_suspend()
    state["batch"] = 0
print("ends", hfai.client.set_whole_life_state(7), hfai.client.get_whole_life_state())
"""

# A language model on several nodes. Rank 0 checks at each step, saves, and yields for all; the others train meanwhile.
MODEL = """
import os, sys, time
from hfai.client import EXP_PRIORITY, go_suspend, receive_suspend_command, set_priority

saved, rank = sys.argv[1], int(os.environ["RANK"])
if os.path.exists(saved):
    print("resumed", rank, open(saved).read())
    sys.exit()
if rank == 0:
    print("priority", set_priority(EXP_PRIORITY.BELOW_NORMAL), flush=True)
for step in range(3000):
    time.sleep(0.02)
    if rank == 0 and receive_suspend_command():
        with open(saved, "w") as file:
            file.write("step")
        go_suspend()
"""


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Deployment]:
    async with process_deployment(tmp_path) as made:
        yield made


async def test_a_classifier_saves_leaves_and_goes_on(here: Deployment, tmp_path: Path) -> None:
    state = str(tmp_path / "state.json")
    task = await here.client.tasks.create(here.spec("classifier", CLASSIFIER, state))
    await here.until_printed(task.id, "begins at")
    await here.client.tasks.suspend(task.id)
    ended = await here.client.tasks.wait(task.id, timeout=60)
    assert (ended.outcome, ended.suspend_count) == (SUCCEEDED, 1)
    lines = await here.lines(task.id)
    assert lines[0] == "begins at 0 0 life 0"
    assert lines[1].startswith("begins at ")
    assert lines[1] != lines[0]
    assert lines[1].endswith("life 100") or lines[1].endswith("life 101")
    assert lines[-1] == "ends True 7"
    assert ended.whole_life_state == 7


async def test_rank_0_speaks_for_a_model_on_several_nodes(here: Deployment, tmp_path: Path) -> None:
    spec = here.spec("model", MODEL, str(tmp_path / "saved"), nodes=2, priority=10)
    task = await here.client.tasks.create(spec)
    await here.until_printed(task.id, "priority True")
    assert (await here.client.tasks.get(task.id)).priority == 5
    await here.client.tasks.suspend(task.id)
    ended = await here.client.tasks.wait(task.id, timeout=60)
    assert (ended.outcome, ended.suspend_count) == (SUCCEEDED, 1)
    assert {"resumed 0 step", "resumed 1 step"} <= set(await here.lines(task.id))


WHERE = "import hai, hfai\nprint(hfai.__file__, hai.__file__)"


@pytest.mark.parametrize("brings", [False, True], ids=["none of its own", "its own"])
async def test_an_environment_gets_it_unless_it_brings_one(here: Deployment, brings: bool) -> None:
    root = here.home / "environments"
    user = (await here.client.users.whoami()).user.name
    make_environment(root, user, "torch")
    layer = layer_of(root, user, "torch")
    if brings:
        python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        packages = layer / "lib" / python / "site-packages"
        (packages / "hfai").mkdir(parents=True)
        (packages / "hfai" / "__init__.py").touch()
    task = await here.run(here.spec("where", WHERE, py_venv="torch"))
    assert task.outcome == SUCCEEDED, task.reason
    [line] = await here.lines(task.id)
    hfai_file, hai_file = map(Path, line.split())
    assert hfai_file.is_relative_to(layer) is brings
    assert hai_file.parent.parent.name == "sdk"
