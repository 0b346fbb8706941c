"""Tasks in environments: each rank runs in the same active environment, and a run reports when it has changed."""

from __future__ import annotations

import asyncio
import base64
import csv
import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hai.client.errors import Invalid
from hai.v1.environment_pb2 import (
    ENVIRONMENT_STATE_BROKEN,
    ENVIRONMENT_STATE_READY,
    Environment,
)
from hai.v1.environment_service_pb2 import EnvironmentDescription
from hai.v1.task_pb2 import TASK_OUTCOME_FAILED, TASK_OUTCOME_SUCCEEDED
from tests.support.deployment import Deployment, pod_deployment, process_deployment
from tests.support.environments import layer_of, lock_of, make_environment

TELL = """
import os, sys
rank, names = os.environ["RANK"], ("HF_ENV_NAME", "HF_ENV_OWNER", "VIRTUAL_ENV", "COLOUR")
print(rank, sys.prefix == os.environ.get("VIRTUAL_ENV"), *(os.environ.get(n) for n in names))
"""
HAIENV = Path(sys.executable).with_name("haienv")
REAL = pytest.mark.skipif(not HAIENV.exists(), reason="haienv is not installed")


@pytest.fixture(
    params=[
        pytest.param(process_deployment, id="processes"),
        pytest.param(pod_deployment, id="pods"),
    ]
)
async def here(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with request.param(tmp_path) as made:
        yield made


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[Deployment]:
    async with process_deployment(tmp_path) as made:
        yield made


def root_of(here: Deployment) -> Path:
    return here.home / "environments"


async def user_of(here: Deployment) -> str:
    return (await here.client.users.whoami()).user.name


async def test_every_rank_runs_in_it(here: Deployment) -> None:
    user = await user_of(here)
    config = {"variables": {"COLOUR": "a = blue:green"}, "bin_dirs": ["/my bin"]}
    lock_hash = make_environment(root_of(here), user, "torch", config=config)
    task = await here.run(here.spec("inside", TELL, nodes=2, py_venv="torch"))
    layer = layer_of(root_of(here), user, "torch")
    assert task.outcome == TASK_OUTCOME_SUCCEEDED, task.reason
    assert sorted(await here.lines(task.id)) == [
        f"{rank} True torch {user} {layer} a = blue:green" for rank in (0, 1)
    ]
    (run,) = await here.client.tasks.runs(task.id)
    assert run.environment_lock == lock_hash
    assert "EnvironmentUsed" in await here.kinds(task.id)


TWICE = """
import os, sys, hai
from pathlib import Path
print("run", os.environ["HAI_RUN"], "in", os.environ["HF_ENV_LOCK"][:12], flush=True)
if os.environ["HAI_RUN"] == "1":
    Path(sys.argv[1]).touch()
    while not hai.receive_suspend_command():
        pass
    hai.go_suspend()
"""


async def test_a_run_in_another_one_than_before_says_so(local: Deployment) -> None:
    user, root = await user_of(local), root_of(local)
    first = make_environment(root, user, "torch")
    spec = local.spec("twice", TWICE, str(local.directory / "began"), py_venv="torch")
    task = await local.client.tasks.create(spec)
    await local.until_printed(task.id, "run 1")
    second = make_environment(root, user, "torch", lock=lock_of("# other packages"))
    await local.client.tasks.suspend(task.id)
    task = await local.client.tasks.wait(task.id, timeout=60)
    assert task.outcome == TASK_OUTCOME_SUCCEEDED, task.reason
    runs = await local.client.tasks.runs(task.id)
    assert [run.environment_lock for run in runs] == [first, second]
    (told,) = [
        e for e in await local.client.tasks.events(task.id) if e.kind == "EnvironmentChanged"
    ]
    assert f"lock {second[:12]}; in the run before it had {first[:12]}" in told.reason


async def test_one_without_its_python_is_refused_at_submission(local: Deployment) -> None:
    user, root = await user_of(local), root_of(local)
    make_environment(root, user, "torch")
    python = layer_of(root, user, "torch") / "bin" / "python"
    python.unlink()
    python.symlink_to("/opt/gone/bin/python3.11")
    spec = local.spec("outside", TELL, py_venv="torch", program={"workspace": "/no/such/place"})
    for submit in (local.client.tasks.create, local.client.tasks.dry_run):
        with pytest.raises(Invalid) as refused:
            await submit(spec)
        told = str(refused.value)
        assert f"torch[{user}] is BROKEN: {python} leads to /opt/gone/bin/python3.11, which" in told
        assert "`haienv upgrade torch` (with -p: on another Python) rebuilds it" in told
        assert "spec.workspace: /no/such/place is not a directory on this machine" in told
    (listed,) = await local.client.environments.list()
    assert listed.state == ENVIRONMENT_STATE_BROKEN
    assert not (await local.client.tasks.list()).tasks


async def test_one_that_breaks_after_submission_ends_the_run_with_its_name_and_node(
    local: Deployment,
) -> None:
    user, root = await user_of(local), root_of(local)
    make_environment(root, user, "torch")
    await local.client.nodes.cordon("node1", "so that it waits")
    await local.client.nodes.cordon("node2", "so that it waits")
    submitted = await local.client.tasks.create(local.spec("outside", TELL, py_venv="torch"))
    (layer_of(root, user, "torch") / "lock.txt").write_text("changed by hand")
    await local.client.nodes.uncordon("node1")
    task = await local.client.tasks.wait(submitted.id, timeout=60)
    assert task.outcome == TASK_OUTCOME_FAILED
    assert (
        f"environment torch[{user}] cannot be activated on node1: lock.txt does not match"
        in task.reason
    )
    (run,) = await local.client.tasks.runs(task.id)
    assert run.stop_code & 256  # INIT_FAILED
    assert run.environment_lock == ""


async def test_a_task_may_go_on_without(local: Deployment) -> None:
    user, root = await user_of(local), root_of(local)
    make_environment(root, user, "torch")
    await local.client.nodes.cordon("node1", "so that it waits")
    await local.client.nodes.cordon("node2", "so that it waits")
    submitted = await local.client.tasks.create(
        local.spec("without", TELL, py_venv="torch", env_fallback=True)
    )
    (layer_of(root, user, "torch") / "lock.txt").write_text("changed by hand")
    await local.client.nodes.uncordon("node1")
    task = await local.client.tasks.wait(submitted.id, timeout=60)
    assert task.outcome == TASK_OUTCOME_SUCCEEDED
    lines = await local.lines(task.id)
    assert "going on without it, as env_fallback says" in lines[0]
    assert lines[1].endswith("None None None None")
    assert "EnvironmentMissing" in await local.kinds(task.id)


def haienv(root: Path, user: str, *words: str, **more: str) -> None:
    """Run haienv as this user."""
    variables = {**os.environ, "HAIENV_HOME": str(root), "HAIENV_USER": user, **more}
    subprocess.run([HAIENV, *words], check=True, env=variables, capture_output=True)


def a_wheel(directory: Path, name: str) -> Path:
    """Build a wheel of one module that no package index has, and return its path."""
    files = {
        f"{name}.py": b"colour = 'blue'\n",
        f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{name}-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\n"
        b"Root-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow([path, f"sha256={digest}", len(data)])
    rows.writerow([f"{name}-1.0.dist-info/RECORD", "", ""])
    files[f"{name}-1.0.dist-info/RECORD"] = record.getvalue().encode()
    made = directory / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return made


@REAL
async def test_haienv_itself_works_in_a_task(here: Deployment) -> None:
    user = await user_of(here)
    make_environment(root_of(here), user, "torch")
    code = f"import subprocess\nprint(subprocess.check_output([{str(HAIENV)!r}, 'list', '--names'], text=True))"
    task = await here.run(here.spec("inside", code))
    assert (await here.lines(task.id))[0] == "torch", task.reason


@REAL
async def test_an_environment_of_haienv_is_listed_run_in_and_removed(local: Deployment) -> None:
    user, root = await user_of(local), root_of(local)
    wheel = a_wheel(local.directory, "paint")
    links = ("--no-index", "--find-links", str(local.directory))
    haienv(
        root,
        user,
        "create",
        "base",
        "--no_extend",
        "-p",
        sys.executable,
        str(wheel.stem.split("-")[0]),
        *links,
    )
    haienv(root, user, "create", "mine", "--extend", "base")
    found = {e.name: e for e in await local.client.environments.list()}
    assert {e.state for e in found.values()} == {ENVIRONMENT_STATE_READY}
    assert found["mine"].parent == f"base[{user}]"
    task = await local.run(
        local.spec("paints", "import paint\nprint(paint.colour)", nodes=2, py_venv="mine")
    )
    assert await local.lines(task.id) == ["blue", "blue"], task.reason
    await local.client.environments.delete("mine")
    assert [e.name for e in await local.client.environments.list()] == ["base"]


HOLDS = """
import time
print("inside", flush=True)
while True:
    time.sleep(0.1)
"""


@REAL
async def test_what_a_program_runs_in_outlives_its_environment(local: Deployment) -> None:
    user, root = await user_of(local), root_of(local)
    profile = local.client.profile
    known = {"HAI_SERVER": profile.server, "HAI_TOKEN": profile.token}
    links = ("--no-index", "--find-links", str(local.directory))
    a_wheel(local.directory, "paint")
    a_wheel(local.directory, "brush")
    haienv(root, user, "create", "mine", "--no_extend", "-p", sys.executable, *links)
    layer = layer_of(root, user, "mine")
    task = await local.client.tasks.create(local.spec("holds", HOLDS, py_venv="mine"))
    await local.until_printed(task.id, "inside")
    for package in ("paint", "brush"):
        haienv(root, user, "install", "mine", package, *links)
    await asyncio.to_thread(haienv, root, user, "gc", "--days", "0", "--yes", **known)
    assert layer.is_dir()
    await local.client.tasks.stop(task.id)
    await local.client.tasks.wait(task.id, timeout=60)
    await asyncio.to_thread(haienv, root, user, "gc", "--days", "0", "--yes", **known)
    assert not layer.exists()


WHERE = "import os, sys, paint\nprint(paint.__file__, sys.prefix == os.environ['VIRTUAL_ENV'])"


@REAL
@pytest.mark.parametrize(
    "place",
    [pytest.param(process_deployment, id="processes"), pytest.param(pod_deployment, id="pods")],
)
async def test_what_was_packed_runs_on_the_nodes_own_disk(place: Any, tmp_path: Path) -> None:
    """Unpacked once; where the image cannot be used, the task runs from shared storage and says why."""
    disk = tmp_path / "disk"
    disk.mkdir()
    async with place(tmp_path, environment_copies=str(disk)) as here:
        user, root = await user_of(here), root_of(here)
        a_wheel(here.directory, "paint")
        links = ("--no-index", "--find-links", str(here.directory))
        haienv(root, user, "create", "base", "--no_extend", "-p", sys.executable, "paint", *links)
        haienv(root, user, "create", "mine", "--extend", "base")
        spec = here.spec("paints", WHERE, nodes=2, py_venv="mine")
        below = layer_of(root, user, "base").relative_to(root)
        inside = Path("lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")

        async def lines() -> list[str]:
            task = await here.run(spec)
            assert task.outcome == TASK_OUTCOME_SUCCEEDED, task.reason
            return sorted(await here.lines(task.id))

        assert await lines() == [f"{root / below / inside / 'paint.py'} True"] * 2
        haienv(root, user, "pack", "mine")
        copy = f"{disk / str(os.geteuid()) / below / inside / 'paint.py'} True"
        first = await lines()
        assert first[:2] == [copy] * 2, first
        assert first[2].startswith(f"[hai] unpacking environment mine[{user}] here")
        assert await lines() == [copy] * 2  # it is there now
        os.truncate(layer_of(root, user, "mine") / "image.tar.zst", 100)
        shutil.rmtree(disk / str(os.geteuid()))
        told = await lines()
        assert told[:2] == [f"{root / below / inside / 'paint.py'} True"] * 2
        why = f"[hai] environment mine[{user}] runs from shared storage: its image is damaged"
        assert told[2].startswith(why), told


@REAL
async def test_a_lock_is_built_on_the_cluster_with_wheels_that_no_index_has(
    local: Deployment,
) -> None:
    user, root = await user_of(local), root_of(local)
    wheel = a_wheel(local.directory, "paint")
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    lock = f"# haienv lock 1\n# python {minor}\npaint==1.0 --hash=sha256:{sha256}\n"
    description = EnvironmentDescription(
        name="pushed",
        python_version=minor,
        lock=lock,
        config='variables = {COLOUR = "a = b"}',
        local_wheels=[sha256],
    )
    building = local.client.environments.build(description, {sha256: wheel})
    *lines, made = [answer async for answer in building]
    assert isinstance(made, Environment), lines
    assert made.state == ENVIRONMENT_STATE_READY
    assert (root / user / "pushed" / "env.toml").exists()
    code = "import os, paint\nprint(paint.colour, os.environ['COLOUR'])"
    task = await local.run(local.spec("pushed", code, py_venv="pushed"))
    assert await local.lines(task.id) == ["blue a = b"], task.reason
    description.replace = True
    *_, again = [answer async for answer in local.client.environments.build(description, {})]
    assert isinstance(again, Environment)
    assert again.lock_hash == made.lock_hash
    described = await local.client.environments.export("pushed")
    assert hashlib.sha256(described.lock.encode()).hexdigest() == made.lock_hash


class Losing(dict[str, Path]):
    """Wheels that lose the server's copy of one while another is sent."""

    def __init__(self, kept: Path, wheels: dict[str, Path]) -> None:
        super().__init__(wheels)
        self._kept = kept

    def __getitem__(self, sha256: str) -> Path:
        shutil.rmtree(self._kept, ignore_errors=True)
        return super().__getitem__(sha256)


@REAL
async def test_a_wheel_that_went_from_there_meanwhile_is_sent_again(local: Deployment) -> None:
    wheels = [a_wheel(local.directory, name) for name in ("paint", "brush")]
    paint, brush = hashes = [hashlib.sha256(w.read_bytes()).hexdigest() for w in wheels]
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    description = EnvironmentDescription(
        name="pushed",
        python_version=minor,
        lock=f"# haienv lock 1\n# python {minor}\n"
        f"brush==1.0 --hash=sha256:{brush}\npaint==1.0 --hash=sha256:{paint}\n",
        local_wheels=hashes,
    )
    kept = local.home / "wheels" / paint
    kept.mkdir(parents=True)
    shutil.copy(wheels[0], kept)
    files = Losing(kept, dict(zip(hashes, wheels, strict=True)))
    *lines, made = [a async for a in local.client.environments.build(description, files)]
    assert isinstance(made, Environment), lines
    assert made.state == ENVIRONMENT_STATE_READY
