"""Environments: visibility, state of the files, builds, and use by tasks."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from hai.v1 import environment_service_pb2 as pb
from hai.v1 import task_service_pb2
from hai.v1.environment_pb2 import (
    ENVIRONMENT_STATE_BROKEN,
    ENVIRONMENT_STATE_FAILED,
    ENVIRONMENT_STATE_READY,
    ENVIRONMENT_VISIBILITY_GROUP,
    Environment,
)
from hai.v1.task_pb2 import Task
from hai_backend.api.environments import uses as environment_uses
from hai_backend.api.environments.pinning import EnvironmentPinning
from hai_backend.domain import environment as domain
from hai_backend.domain.environment import EnvironmentName, EnvironmentState
from hai_backend.domain.priority import Priority
from hai_backend.environments import read
from hai_backend.environments.open_directories import OpenDirectory
from hai_backend.environments.read import Unreadable
from hai_backend.lifecycle import events as ev
from tests.support.environments import (
    BUILDER,
    as_parent,
    fake_haienv,
    lock_of,
    make_environment,
)

C = grpc.StatusCode


def make(platform: Any, owner: str, name: str, **more: Any) -> str:
    return make_environment(platform.environments.root, owner, name, **more)


async def listed(platform: Any, user: str, owner: str = "") -> list[Environment]:
    caller = await platform.caller(user)
    answer = await caller.environments.ListEnvironments(pb.ListEnvironmentsRequest(owner=owner))
    assert answer.root == str(platform.environments.root)
    return list(answer.environments)


async def names(platform: Any, user: str, owner: str = "") -> list[str]:
    return [f"{e.name}[{e.owner}]" for e in await listed(platform, user, owner)]


def a_task(py_venv: str, name: str = "t") -> task_service_pb2.CreateTaskRequest:
    request = task_service_pb2.CreateTaskRequest()
    request.spec.version, request.spec.name = 2, name
    request.spec.spec.entrypoint = "train.py"
    request.spec.options.py_venv = py_venv
    return request


async def submitted(platform: Any, user: str, py_venv: str, name: str = "t") -> Task:
    caller = await platform.caller(user)
    task: Task = await caller.tasks.CreateTask(a_task(py_venv, name))
    return task


def which(name: str, owner: str = "") -> dict[str, str]:
    return {"name": name, "owner": owner}


@pytest.mark.parametrize(
    ("label", "seen_by"),
    [
        pytest.param({"visibility": "private"}, ["ada", "olga"], id="private"),
        pytest.param(
            {"visibility": "group", "group": "vision"}, ["ada", "bob", "olga"], id="group"
        ),
        pytest.param({"visibility": "public"}, ["ada", "bob", "eve", "olga"], id="public"),
    ],
)
async def test_visibility_of_environments(
    platform: Any, expect_refusal: Any, label: dict[str, str], seen_by: list[str]
) -> None:
    make(platform, "ada", "torch", **label)
    people = ("ada", "bob", "eve", "olga")
    assert [n for n in people if "torch[ada]" in await names(platform, n)] == seen_by
    for name in set(people) - set(seen_by):
        caller = await platform.caller(name)
        for method, kind in (
            ("Get", pb.GetEnvironmentRequest),
            ("Delete", pb.DeleteEnvironmentRequest),
        ):
            async with expect_refusal() as why:
                call = getattr(caller.environments, f"{method}Environment")
                await call(kind(**which("torch", "ada")))
            assert why[0].code is C.NOT_FOUND


async def test_list_follows_the_files(platform: Any) -> None:
    before = make(platform, "ada", "torch", visibility="public")
    (found,) = await listed(platform, "bob")
    assert (found.lock_hash, found.state, found.packages) == (before, ENVIRONMENT_STATE_READY, 3)
    after = make(platform, "ada", "torch", lock=lock_of("# newer"), visibility="public")
    (found,) = await listed(platform, "bob")
    assert found.lock_hash == after != before
    shutil.rmtree(platform.environments.root / "ada")
    (found,) = await listed(platform, "bob")
    assert (found.state, found.lock_hash) == (ENVIRONMENT_STATE_BROKEN, after)
    assert "its files were deleted" in found.message


async def test_number_of_records_per_user_is_limited(
    platform: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "MAX_PER_USER", 4)
    for number in range(3):
        for other in range(3):
            make(platform, "eve", f"e{number}{other}")
        await names(platform, "eve")
        shutil.rmtree(platform.environments.root / "eve")
    assert len(await platform.store.records(domain.Environment)) == 4


async def test_files_have_precedence_over_the_report_of_the_owner(
    platform: Any, expect_refusal: Any
) -> None:
    ada = await platform.caller("ada")
    reported = Environment(name="torch", lock_hash="0" * 64, packages=99)
    async with expect_refusal() as why:
        await ada.environments.RegisterEnvironment(
            pb.RegisterEnvironmentRequest(environment=reported)
        )
    assert why[0].code is C.NOT_FOUND
    lock_hash = make(platform, "ada", "torch")
    request = pb.RegisterEnvironmentRequest(environment=reported)
    found = await ada.environments.RegisterEnvironment(request)
    assert (found.owner, found.lock_hash, found.packages) == ("ada", lock_hash, 3)


async def test_report_of_the_owner_counts_if_files_are_unreadable(
    platform: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(platform, "ada", "torch")
    monkeypatch.setattr(read, "read_environment", lambda root, called, trusted: Unreadable(called))
    monkeypatch.setattr(read, "scan_environments", lambda root, trusted: iter(()))
    ada = await platform.caller("ada")
    reported = Environment(
        name="torch",
        lock_hash="a" * 64,
        parent="base[system]",
        packages=7,
        visibility=ENVIRONMENT_VISIBILITY_GROUP,
        user_group="vision",
        state=ENVIRONMENT_STATE_BROKEN,
        owner="bob",
    )
    request = pb.RegisterEnvironmentRequest(environment=reported)
    found = await ada.environments.RegisterEnvironment(request)
    assert (found.owner, found.state) == ("ada", ENVIRONMENT_STATE_READY)
    assert (found.lock_hash, found.parent, found.packages) == ("a" * 64, "base[system]", 7)
    assert await names(platform, "bob") == ["torch[ada]"]
    assert (await submitted(platform, "bob", "torch[ada]")).spec.options.py_venv == "torch[ada]"


async def test_all_violations_of_a_report_are_reported_together(
    platform: Any, expect_refusal: Any
) -> None:
    ada = await platform.caller("ada")
    reported = Environment(name="../x", lock_hash="z", parent="a b", packages=-1, visibility=2)
    async with expect_refusal() as why:
        await ada.environments.RegisterEnvironment(
            pb.RegisterEnvironmentRequest(environment=reported)
        )
    fields = ("name", "parent", "lock_hash", "packages", "user_group")
    assert set(dict(why[0].violations)) == {f"environment.{field}" for field in fields}


MEANT = [
    pytest.param("torch", "ada", "torch[ada]", id="own first"),
    pytest.param("torch", "eve", "torch[system]", id="then the system's"),
    pytest.param("torch[bob]", "ada", "torch[bob]", id="somebody's by name"),
    pytest.param("only", "eve", "only[bob]", id="one of another"),
    pytest.param("py3-202111", "eve", "202111[system]", id="a name of the original"),
]


@pytest.mark.parametrize(("wanted", "user", "meant"), MEANT)
async def test_task_keeps_its_environment(
    platform: Any, wanted: str, user: str, meant: str
) -> None:
    for owner, name in (
        ("ada", "torch"),
        ("bob", "torch"),
        ("system", "torch"),
        ("bob", "only"),
        ("system", "202111"),
    ):
        make(platform, owner, name, visibility="public")
    assert (await submitted(platform, user, wanted)).spec.options.py_venv == meant


REFUSED = [
    pytest.param("touch", "did you mean torch", id="nearest name"),
    pytest.param("secret", "the cluster has no environment 'secret'", id="another's private one"),
    pytest.param(
        "secret[bob]", "the cluster has no environment 'secret[bob]'", id="by its whole name"
    ),
    pytest.param("twice", "is ambiguous: use one of twice[bob], twice[eve]", id="of two people"),
    pytest.param("broken", "is BROKEN: layer", id="broken"),
]


@pytest.mark.parametrize(("wanted", "why"), REFUSED)
async def test_unusable_environment_is_refused_at_submission(
    platform: Any, expect_refusal: Any, wanted: str, why: str
) -> None:
    make(platform, "ada", "torch")
    make(platform, "bob", "secret")
    for owner in ("bob", "eve"):
        make(platform, owner, "twice", visibility="public")
    make(platform, "ada", "broken", lock=lock_of("# gone"))
    lock_hash = hashlib.sha256(lock_of("# gone").encode()).hexdigest()
    shutil.rmtree(platform.environments.root / "ada" / ".layers" / lock_hash[:24])
    async with expect_refusal() as result:
        await submitted(platform, "ada", wanted)
    assert why in dict(result[0].violations)["options.py_venv"]


async def test_operator_sees_all_environments_but_uses_only_permitted_ones(
    platform: Any, expect_refusal: Any
) -> None:
    make(platform, "ada", "torch")
    assert await names(platform, "olga") == ["torch[ada]"]
    async with expect_refusal():
        await submitted(platform, "olga", "torch[ada]")


async def test_timeline_names_a_deprecated_environment(platform: Any) -> None:
    make(platform, "ada", "torch", deprecated="torch2")
    task = await submitted(platform, "ada", "torch")
    ada = await platform.caller("ada")
    request = task_service_pb2.ListTaskEventsRequest(id=task.id)
    events = (await ada.tasks.ListTaskEvents(request)).events
    assert any("deprecated: use torch2" in event.reason for event in events)


async def test_environment_in_use_cannot_be_deleted(platform: Any, expect_refusal: Any) -> None:
    make(platform, "ada", "base", visibility="public")
    parent = as_parent(platform.environments.root, "ada", "base")
    make(platform, "ada", "mine", parents=[parent])
    make(platform, "eve", "hers", parents=[parent])
    ada = await platform.caller("ada")
    task = await submitted(platform, "ada", "base")
    assert (await listed(platform, "ada"))[0].used_by == [task.id]
    request = pb.DeleteEnvironmentRequest(**which("base"))
    async with expect_refusal() as why:
        await ada.environments.DeleteEnvironment(request)
    assert why[0].code is C.FAILED_PRECONDITION
    assert f"is used by task {task.id}" in why[0].message
    await ada.tasks.StopTask(task_service_pb2.StopTaskRequest(id=task.id))
    async with expect_refusal() as why:
        await ada.environments.DeleteEnvironment(request)
    assert "is extended by mine[ada], 1 of others" in why[0].message
    shutil.rmtree(platform.environments.root / "eve" / "hers")
    shutil.rmtree(platform.environments.root / "ada" / "mine")
    for owner, name in (("eve", "hers"), ("ada", "mine")):
        await platform.store.delete_record(domain.Environment(owner, name))
    await ada.environments.DeleteEnvironment(request)
    assert not (platform.environments.root / "ada" / "base").exists()
    assert await names(platform, "ada") == []


async def test_readable_environment_needs_no_records(
    platform: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every task and run needs its environment."""

    async def records(kind: object) -> list[object]:
        raise AssertionError(f"all of {kind}")

    make(platform, "ada", "torch")
    monkeypatch.setattr(platform.store, "records", records)
    found = await platform.environments.get(EnvironmentName("ada", "torch"))
    assert found.state is EnvironmentState.READY


async def test_environment_without_files_can_be_deleted(platform: Any) -> None:
    make(platform, "ada", "torch")
    assert await names(platform, "ada") == ["torch[ada]"]
    shutil.rmtree(platform.environments.root / "ada")
    ada = await platform.caller("ada")
    await ada.environments.DeleteEnvironment(pb.DeleteEnvironmentRequest(**which("torch")))
    assert await names(platform, "ada") == []


async def test_interrupted_build_has_failed(platform: Any) -> None:
    lost = domain.Environment("ada", "torch", EnvironmentState.BUILDING)
    await platform.store.save_record(lost)
    await platform.environments.load()
    await platform.environments.begin()
    (found,) = await listed(platform, "ada")
    assert found.state == ENVIRONMENT_STATE_FAILED
    assert "build it again" in found.message


async def test_directory_of_another_uid_is_not_trusted(
    platform: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(platform, "ada", "torch")
    await platform.directory.update_user(replace(platform.directory.user("ada"), uid=54321))
    monkeypatch.setattr(OpenDirectory, "owner_uid", lambda folder: 666)
    (found,) = await listed(platform, "ada")
    assert found.state == ENVIRONMENT_STATE_BROKEN
    assert "belongs to uid 666, which is not that of ada" in found.message


def described(name: str = "torch", **more: Any) -> pb.EnvironmentDescription:
    more.setdefault("python_version", "3.11")
    more.setdefault("lock", lock_of("six==1"))
    return pb.EnvironmentDescription(name=name, **more)


async def built(
    platform: Any, user: str, description: pb.EnvironmentDescription, *parts: pb.WheelPart
) -> list[pb.BuildEnvironmentResponse]:
    caller = await platform.caller(user)
    requests = [pb.BuildEnvironmentRequest(description=description)]
    requests += [pb.BuildEnvironmentRequest(wheel=part) for part in parts]
    return [answer async for answer in caller.environments.BuildEnvironment(iter(requests))]


async def test_build_yields_its_lines_and_then_the_environment(platform: Any) -> None:
    description = described(config='variables = {A = "x"}')
    first, *lines, last = await built(platform, "ada", description)
    assert first.WhichOneof("message") == "missing"
    assert [answer.line for answer in lines] == ["building torch", "wheels"]
    made = last.environment
    assert (made.owner, made.state) == ("ada", ENVIRONMENT_STATE_READY)
    assert made.lock_hash == hashlib.sha256(description.lock.encode()).hexdigest()
    assert await names(platform, "ada") == ["torch[ada]"]
    (row,) = [r for r in (await platform.store.audit()).rows if r.method == "BuildEnvironment"]
    assert (row.actor, row.code, "torch" in row.what) == ("ada", "OK", True)


async def test_wheel_is_sent_once_and_only_by_its_content(
    platform: Any, expect_refusal: Any
) -> None:
    data = b"wheel " * 1000
    sha256 = hashlib.sha256(data).hexdigest()
    lock = lock_of(f"mine==1 --hash=sha256:{sha256}")
    name = "mine-1-py3-none-any.whl"
    first = described("one", lock=lock, local_wheels=[sha256])
    parts = [
        pb.WheelPart(name=name, sha256=sha256, data=data[i : i + 2000]) for i in (0, 2000, 4000)
    ]
    with_other = [*parts[:2], pb.WheelPart(name=name, sha256=sha256, data=b"x" * 2000)]
    async with expect_refusal() as why:
        await built(platform, "ada", first, *with_other)
    assert why[0].code is C.INVALID_ARGUMENT
    answers = await built(platform, "ada", first, *parts)
    assert list(answers[0].missing.sha256) == [sha256]
    assert answers[2].line == f"wheels {name}"
    again = await built(platform, "bob", described("two", lock=lock, local_wheels=[sha256]))
    assert list(again[0].missing.sha256) == []
    assert again[2].line == f"wheels {name}"
    stored = [p.name for p in (platform.home / "wheels").iterdir()]
    assert stored == [sha256]


async def test_partial_wheels_are_deleted_after_a_day(platform: Any) -> None:
    left, upload = (platform.home / "wheels" / f"{'0' * 64}.{digit * 16}" for digit in "ab")
    left.parent.mkdir()
    for half, hours in ((left, 25), (upload, 23)):
        half.write_bytes(b"half")
        os.utime(half, (0, time.time() - hours * 3600))
    await built(platform, "ada", described())
    assert list(left.parent.iterdir()) == [upload]


async def test_unused_wheels_are_deleted_after_30_days(platform: Any) -> None:
    wheels = {digit: platform.home / "wheels" / (digit * 64) for digit in "abc"}
    for folder, days in zip(wheels.values(), (31, 29, 31), strict=True):
        folder.mkdir(parents=True)
        (folder / "mine-1-py3-none-any.whl").write_bytes(b"wheel")
        os.utime(folder, (0, time.time() - days * 24 * 3600))
    lock = lock_of(f"mine==1 --hash=sha256:{'c' * 64}")
    await built(platform, "ada", described(lock=lock, local_wheels=["c" * 64]))
    assert sorted((platform.home / "wheels").iterdir()) == [wheels["b"], wheels["c"]]
    assert platform.wheel_bytes == [10]


async def test_full_disk_is_reported_and_the_next_build_works(
    platform: Any, expect_refusal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*of: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    sha256 = hashlib.sha256(b"wheel").hexdigest()
    wanted = described(lock=lock_of(f"mine==1 --hash=sha256:{sha256}"), local_wheels=[sha256])
    part = pb.WheelPart(name="mine-1-py3-none-any.whl", sha256=sha256, data=b"wheel")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        async with expect_refusal() as why:
            await built(platform, "ada", wanted, part)
    assert (why[0].code, why[0].reason) == (C.RESOURCE_EXHAUSTED, "DISK_FULL")
    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "mkdtemp", full)
        async with expect_refusal() as why:
            await built(platform, "ada", wanted, part)
    assert why[0].reason == "BUILD_FAILED"
    (found,) = await listed(platform, "ada")
    assert "No space left on device" in found.message
    *_, last = await built(platform, "ada", wanted)
    assert last.environment.state == ENVIRONMENT_STATE_READY


async def test_two_clients_may_send_the_same_wheel(platform: Any) -> None:
    sha256 = hashlib.sha256(b"wheel").hexdigest()
    wanted = described(lock=lock_of(f"mine==1 --hash=sha256:{sha256}"), local_wheels=[sha256])
    part = pb.WheelPart(name="mine-1-py3-none-any.whl", sha256=sha256, data=b"wheel")

    async def slowly() -> AsyncIterator[pb.BuildEnvironmentRequest]:
        yield pb.BuildEnvironmentRequest(description=wanted)
        await build_started.wait()
        await built(platform, "ada", wanted, part)
        yield pb.BuildEnvironmentRequest(wheel=part)

    build_started = asyncio.Event()
    caller = await platform.caller("bob")
    answers = []
    async for answer in caller.environments.BuildEnvironment(slowly()):
        build_started.set()
        answers.append(answer)
    assert list(answers[0].missing.sha256) == [sha256]
    assert answers[-1].environment.state == ENVIRONMENT_STATE_READY


@pytest.mark.parametrize(
    ("part", "field"),
    [
        pytest.param({"sha256": "0" * 64}, "wheel.sha256", id="one that nobody asked for"),
        pytest.param({"sha256": "../../x"}, "wheel.sha256", id="no hash"),
        pytest.param({"name": "../x.whl"}, "wheel", id="a name that climbs"),
        pytest.param({"name": "x.tar.gz"}, "wheel", id="no wheel"),
        pytest.param({"data": b"other"}, "wheel", id="other bytes"),
    ],
)
async def test_wheel_that_is_not_the_missing_one_is_refused_and_not_kept(
    platform: Any, expect_refusal: Any, part: dict[str, Any], field: str
) -> None:
    sha256 = hashlib.sha256(b"wheel").hexdigest()
    lock = lock_of(f"mine==1 --hash=sha256:{sha256}")
    right = {"name": "mine-1-py3-none-any.whl", "sha256": sha256, "data": b"wheel"}
    wanted = described(lock=lock, local_wheels=[sha256])
    async with expect_refusal() as why:
        await built(platform, "ada", wanted, pb.WheelPart(**{**right, **part}))
    assert [name.partition("[")[0] for name in dict(why[0].violations)] == [field]
    assert not [*(platform.home / "wheels").rglob("*")]
    assert await names(platform, "ada") == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"name": "../x"}, "name", id="name climbs"),
        pytest.param({"name": "--force"}, "name", id="name is an option"),
        pytest.param({"parent": "--x"}, "parent", id="parent is an option"),
        pytest.param({"python_version": "3.11 -c"}, "python_version", id="python is an option"),
        pytest.param({"config": "[" * 9999}, "config", id="no TOML"),
        pytest.param({"visibility": 2}, "user_group", id="group of nobody"),
        pytest.param({"visibility": 2, "user_group": "speech"}, "user_group", id="others' group"),
        pytest.param({"local_wheels": ["0" * 64]}, "local_wheels[0]", id="not in the lock"),
        pytest.param({"local_wheels": ["../../x"]}, "local_wheels[0]", id="no hash"),
    ],
)
async def test_what_cannot_be_built_is_refused(
    platform: Any, expect_refusal: Any, change: dict[str, Any], field: str
) -> None:
    async with expect_refusal() as why:
        await built(platform, "ada", described(**{"name": "torch", **change}))
    assert f"description.{field}" in dict(why[0].violations)


async def test_failed_build_keeps_its_last_message(platform: Any, expect_refusal: Any) -> None:
    fake_haienv(platform.home / "haienv", "print('resolving'); sys.exit('no such wheel')")
    async with expect_refusal() as why:
        await built(platform, "ada", described())
    assert "torch[ada] was not built: no such wheel" in why[0].message
    (found,) = await listed(platform, "ada")
    assert (found.state, found.message) == (ENVIRONMENT_STATE_FAILED, "no such wheel")


async def test_existing_name_is_refused_without_replace(platform: Any, expect_refusal: Any) -> None:
    await built(platform, "ada", described())
    async with expect_refusal() as why:
        await built(platform, "ada", described(lock=lock_of("# other")))
    assert why[0].code is C.ALREADY_EXISTS
    other = described(lock=lock_of("# other"), replace=True)
    made = (await built(platform, "ada", other))[-1].environment
    assert made.lock_hash == hashlib.sha256(other.lock.encode()).hexdigest()
    assert await names(platform, "ada") == ["torch[ada]"]


async def test_replaced_environment_in_use_is_renamed(
    platform: Any,
) -> None:
    before = make(platform, "ada", "torch")
    await submitted(platform, "ada", "torch")
    made = (await built(platform, "ada", described(replace=True)))[-1].environment
    stored = {e.name: e.lock_hash for e in await listed(platform, "ada")}
    assert stored.pop("torch") == made.lock_hash != before
    ((name, lock_hash),) = stored.items()
    assert (name.startswith("torch.old-"), lock_hash) == (True, before)


async def test_replaced_environment_exists_until_the_new_one_is_ready(
    platform: Any, expect_refusal: Any
) -> None:
    before = make(platform, "ada", "torch")
    full = "if words[0] == 'rename' and '.new-' in words[1]:\n    sys.exit('haienv: no room')"
    fake_haienv(platform.home / "haienv", f"{full}\n{BUILDER}")
    async with expect_refusal() as why:
        await built(platform, "ada", described(replace=True))
    assert "no room" in why[0].message
    assert before in [
        e.lock_hash for e in await listed(platform, "ada") if e.state == ENVIRONMENT_STATE_READY
    ]


async def test_environment_used_during_its_rebuild_is_kept(platform: Any, tmp_path: Path) -> None:
    before = make(platform, "ada", "torch")
    os.mkfifo(tmp_path / "go")
    wait = f"if words[0] == 'create':\n    print('begun', flush=True)\n    open({str(tmp_path / 'go')!r}).close()"
    fake_haienv(platform.home / "haienv", f"{wait}\n{BUILDER}")
    request = pb.BuildEnvironmentRequest(description=described(replace=True))
    ada = await platform.caller("ada")
    async for answer in ada.environments.BuildEnvironment(iter([request])):
        if answer.line == "begun":
            await submitted(platform, "ada", "torch")
            await asyncio.to_thread((tmp_path / "go").write_text, "")
    assert before in [e.lock_hash for e in await listed(platform, "ada")]


async def test_parent_must_have_the_expected_lock(platform: Any, expect_refusal: Any) -> None:
    lock_hash = make(platform, "system", "base", visibility="public")
    for wrong in (
        {"parent": "base[eve]"},
        {"parent": "base[system]", "parent_lock_hash": "0" * 64},
    ):
        async with expect_refusal():
            await built(platform, "ada", described(**wrong))
    right = {"parent": "base[system]", "parent_lock_hash": lock_hash}
    assert (await built(platform, "ada", described(**right)))[-1].environment.name == "torch"


async def test_all_ranks_of_a_run_take_one_layer_and_the_next_run_the_newest(platform: Any) -> None:
    make(platform, "ada", "torch")
    first = as_parent(platform.environments.root, "ada", "torch")["layer"]
    task = await submitted(platform, "ada", "torch")
    pinning = EnvironmentPinning(platform.environments)
    run = ev.RunPlaced(("n0",), Priority.NORMAL, "fits")
    running = await platform.task_manager.apply(task.id, run)
    result = await pinning(running)
    assert (result.root, result.owner, result.name) == (
        str(platform.environments.root),
        "ada",
        "torch",
    )
    make(platform, "ada", "torch", lock=lock_of("# newer"))
    assert (result.layer, (await pinning(running)).layer) == (first, first)
    later = replace(running, run=replace(running.run, number=2))
    second = as_parent(platform.environments.root, "ada", "torch")["layer"]
    assert (await pinning(later)).layer == second != first


async def in_use(platform: Any, user: str) -> list[str]:
    caller = await platform.caller(user)
    request = pb.ListEnvironmentsRequest(layers_in_use=True)
    return list((await caller.environments.ListEnvironments(request)).layers_in_use)


async def test_owner_sees_the_layers_in_use(platform: Any) -> None:
    root = platform.environments.root
    make(platform, "system", "base", visibility="public")
    base = as_parent(root, "system", "base")
    make(platform, "ada", "torch", parents=[base])
    layer = as_parent(root, "ada", "torch")["layer"]
    task = await submitted(platform, "ada", "torch")
    assert (
        await in_use(platform, "ada") == []
    )  # a waiting task resolves its environment at its start
    placed = ev.RunPlaced(("n0",), Priority.NORMAL, "fits")
    running = await platform.task_manager.apply(task.id, placed)
    await EnvironmentPinning(platform.environments)(running)
    make(platform, "ada", "torch", lock=lock_of("# newer"))
    (root / "ada" / "torch").rename(root / "ada" / "torch.old")
    make(platform, "ada", "torch", lock=lock_of("# newest"))
    assert await in_use(platform, "ada") == [layer]
    assert await in_use(platform, "bob") == []
    platform.environments.pinned.clear()  # as after a restart of the server
    assert await in_use(platform, "ada") == []
    started = replace(running, run=replace(running.run, environment_lock=hash_of(root, layer)))
    uses = environment_uses._use_of_task(started, {})
    assert uses is not None
    assert environment_uses._find_layers_in_use(root, "ada", [uses], []) == {layer}
    assert environment_uses._find_layers_in_use(root, "system", [uses], []) == {base["layer"]}


def hash_of(root: Path, layer: str) -> str:
    return hashlib.sha256((root / "ada" / ".layers" / layer / "lock.txt").read_bytes()).hexdigest()


async def test_parent_of_a_hidden_environment_is_in_use(platform: Any) -> None:
    make(platform, "ada", "base", visibility="public")
    base = as_parent(platform.environments.root, "ada", "base")
    make(platform, "bob", "top", parents=[base], lock=lock_of("# top"))
    make(platform, "ada", "base", lock=lock_of("# newer"), visibility="public")
    assert await in_use(platform, "ada") == [base["layer"]]


async def test_environment_with_running_programs_cannot_be_deleted(
    platform: Any, expect_refusal: Any
) -> None:
    root = platform.environments.root
    make(platform, "ada", "torch")
    task = await submitted(platform, "ada", "torch")
    placed = ev.RunPlaced(("n0",), Priority.NORMAL, "fits")
    await EnvironmentPinning(platform.environments)(
        await platform.task_manager.apply(task.id, placed)
    )
    (root / "ada" / "torch").rename(root / "ada" / "torch.old")
    make(platform, "ada", "torch", lock=lock_of("# newer"))
    ada = await platform.caller("ada")
    request = pb.DeleteEnvironmentRequest(**which("torch.old"))
    async with expect_refusal() as why:
        await ada.environments.DeleteEnvironment(request)
    assert why[0].reason == "ENVIRONMENT_IN_USE"
    make(platform, "ada", "clone")
    (root / "ada" / "clone" / "current").unlink()
    (root / "ada" / "clone" / "current").symlink_to(
        os.readlink(root / "ada" / "torch.old" / "current")
    )
    await ada.environments.DeleteEnvironment(request)


async def test_unreadable_environment_is_resolved_by_agents(platform: Any) -> None:
    make(platform, "ada", "torch")
    task = await submitted(platform, "ada", "torch")
    placed = ev.RunPlaced(("n0",), Priority.NORMAL, "fits")
    running = await platform.task_manager.apply(task.id, placed)
    shutil.rmtree(platform.environments.root / "ada")
    result = await EnvironmentPinning(platform.environments)(running)
    assert (result.name, result.layer, result.fallback) == ("torch", "", False)


async def test_tasks_get_haienv_variables_if_storage_is_visible(platform: Any) -> None:
    root = str(platform.environments.root)
    visible_pinning = EnvironmentPinning(platform.environments)
    assert visible_pinning.haienv_variables("ada") == {"HAIENV_HOME": root, "HAIENV_USER": "ada"}
    assert EnvironmentPinning(platform.environments, visible=False).haienv_variables("ada") == {}


async def test_exported_description_builds_the_same_environment(platform: Any) -> None:
    lock_hash = make(
        platform, "ada", "torch", config={"variables": {"A": "a = b"}}, visibility="public"
    )
    bob = await platform.caller("bob")
    request = pb.ExportEnvironmentRequest(**which("torch", "ada"))
    description = (await bob.environments.ExportEnvironment(request)).description
    assert hashlib.sha256(description.lock.encode()).hexdigest() == lock_hash
    assert 'A = "a = b"' in description.config
    assert list(description.wanted) == ["pandas>=2"]


async def test_build_runs_in_its_own_directory(
    platform: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    body = """
print(*sorted(name for name in os.environ if not name.startswith(("LC_", "UV_"))))
print(os.environ["HOME"] == os.getcwd() == os.environ["TMPDIR"], os.environ["HAIENV_USER"])
print(*words[:2])
make_environment(Path(os.environ["HAIENV_HOME"]), "ada", "torch")
"""
    heads = "from tests.support.environments import make_environment"
    fake_haienv(platform.home / "haienv", heads + body)
    places = tmp_path / "places"
    places.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(places))
    monkeypatch.setenv("HAI_SERVER", "secret:1")
    answers = await built(platform, "ada", described())
    assert "HAI_SERVER" not in answers[1].line
    assert [a.line for a in answers[2:4]] == ["True ada", "create torch"]
    assert list(places.iterdir()) == []


async def test_build_ends_when_its_client_disconnects(platform: Any) -> None:
    """The program and its child would sleep for an hour."""
    body = """
import subprocess, time
print(os.getpid(), subprocess.Popen(["sleep", "3600"]).pid, flush=True)
time.sleep(3600)
"""
    fake_haienv(platform.home / "haienv", body)
    ada = await platform.caller("ada")
    request = pb.BuildEnvironmentRequest(description=described())
    call = ada.environments.BuildEnvironment(iter([request]))
    await call.read()
    pids = [int(pid) for pid in (await call.read()).line.split()]
    call.cancel()
    for pid in pids:
        await wait_ended(pid)


async def wait_ended(pid: int) -> None:
    with suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(pidfd, ended.set)
        async with asyncio.timeout(20):
            await ended.wait()
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)


@pytest.mark.parametrize("name", ["x\0y", "../etc", "a/b", "n" * 100_000])
async def test_impossible_name_is_not_found(platform: Any, expect_refusal: Any, name: str) -> None:
    ada = await platform.caller("ada")
    for wanted in ({"name": name}, {"name": "x", "owner": name}):
        async with expect_refusal() as why:
            await ada.environments.GetEnvironment(pb.GetEnvironmentRequest(**wanted))
        assert why[0].code is grpc.StatusCode.NOT_FOUND
        assert len(why[0].message) < 400
