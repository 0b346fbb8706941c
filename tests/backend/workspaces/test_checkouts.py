"""A task on a revision runs in its own directory, which no later push changes, and its files are kept."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from hai.client.errors import Conflict, Invalid, NotFound
from hai.v1.task_pb2 import Task, TaskOutcome, TaskState
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai_backend.domain import errors
from hai_backend.workspaces import checkouts
from hai_backend.workspaces import garbage_collection as garbage
from hai_backend.workspaces.files import WorkspaceFiles, make_directories
from tests.backend.workspaces.test_crashes import push
from tests.support.deployment import pod_deployment
from tests.support.workspaces import Pusher

WRITER = b"""import pathlib, sys
print(pathlib.Path("data/input").read_text(), flush=True)
pathlib.Path("out").mkdir(exist_ok=True)
pathlib.Path("out/result").write_text("made of " + pathlib.Path("data/input").read_text())
pathlib.Path("data/changed").write_text("by the program")
"""


def spec(workspace: str, name: str = "t", entrypoint: str = "run.py") -> TaskSpec:
    program = ProgramSpec(workspace=workspace, entrypoint=entrypoint)
    return TaskSpec(version=2, name=name, spec=program, resource=ResourceSpec(node_count=1))


async def test_a_task_runs_on_the_revision_that_was_newest_at_submission(service) -> None:
    pusher = await service.pusher()
    await pusher.push({"run.py": WRITER, "data/input": b"one", "data/changed": b"x"})
    created = await service.client.tasks.create(spec("haiworkspace://w"))
    assert created.spec.spec.workspace == "haiworkspace://w@1"
    await pusher.push({"data/input": b"two"})
    done = await service.client.tasks.wait(created.id, timeout=60)
    assert done.state == TaskState.TASK_STATE_FINISHED, done
    lines = [line.text async for a in service.client.logs.tail(created.id) for line in a.lines]
    assert lines == ["one"]
    assert (service.files() / "data/input").read_text() == "two"
    await _tidied(service, created)
    assert await _written(service, created.id) == {"data", "out", "data/changed", "out/result"}
    assert await pusher.fetch(0, "out/result", task=created.id) == [b"made of one"]


async def _written(service, task: int) -> set[str]:
    answers = service.client.workspaces.tree("w", task=task)
    return {entry.path async for answer in answers for entry in answer.entries}


async def _tidied(service, task: Task) -> None:
    await service.server.app.leader.workspaces.wait_collected()
    assert not (service.root / "w/tasks" / str(task.id) / "run.py").exists()


async def test_a_task_may_start_in_a_directory_of_the_workspace(service) -> None:
    pusher = await service.pusher()
    await pusher.push({"a/b/run.py": b"import os; print(os.getcwd())"})
    created = await service.client.tasks.create(spec("haiworkspace://w@1/a/b"))
    await service.client.tasks.wait(created.id, timeout=60)
    lines = [line.text async for a in service.client.logs.tail(created.id) for line in a.lines]
    assert lines[0].endswith(f"/admin/w/tasks/{created.id}/a/b")


async def test_an_unfinished_task_pins_its_revision_and_its_workspace(service) -> None:
    pusher = await service.pusher()
    await pusher.push({"run.py": b"import time; time.sleep(100)"})
    created = await service.client.tasks.create(spec("haiworkspace://w@1"))
    await pusher.push({"more": b"x"})
    pinned = [list(r.pinned_by) for r in (await service.client.workspaces.revisions("w")).revisions]
    assert pinned == [[], [created.id]]
    with pytest.raises(Conflict) as refused:
        await service.client.workspaces.delete("w")
    assert refused.value.reason == "PINNED"
    await service.client.tasks.stop(created.id)
    await service.client.tasks.wait(created.id, timeout=60)


async def test_files_that_tasks_wrote_are_listed_and_can_be_deleted_after_the_end(service) -> None:
    pusher, calls = await service.pusher(), service.client.workspaces
    writes = b"import time; open('out', 'w').write('12345'); time.sleep({})"
    await pusher.push(
        {"run.py": writes.replace(b"{}", b"0"), "wait.py": b"import time; time.sleep(99)"}
    )
    first = await service.client.tasks.create(spec("haiworkspace://w", "first"))
    await service.client.tasks.wait(first.id, timeout=60)
    second = await service.client.tasks.create(spec("haiworkspace://w", "second", "wait.py"))
    await service.client.tasks.wait(second.id, "running", timeout=60)
    await service.server.app.leader.workspaces.wait_collected()
    page = await calls.task_trees("w", page_size=1)
    (newest,) = page.trees
    assert (newest.task, newest.revision, newest.unfinished) == (second.id, 1, True)
    (older,) = (await calls.task_trees("w", page_token=page.next_page_token)).trees
    assert (older.task, older.unfinished) == (first.id, False)
    assert 5 <= older.size_bytes < 10
    with pytest.raises(Conflict, match="has not ended; stop it first"):
        await calls.delete_task_tree("w", second.id)
    stored = (await calls.get("w")).stored_bytes
    await calls.delete_task_tree("w", first.id)
    assert (await calls.get("w")).stored_bytes == stored - older.size_bytes
    assert not list((service.root / "w/tasks").glob(f"*{first.id}*"))
    with pytest.raises(NotFound, match=f"task {first.id} has no directory"):
        await calls.delete_task_tree("w", first.id)
    await service.client.tasks.stop(second.id)
    await service.client.tasks.wait(second.id, timeout=60)


def test_hidden_directories_of_a_dead_server_are_deleted_by_the_next_collection(tmp_path) -> None:
    make_directories(tmp_path / "w", 0)
    with closing(WorkspaceFiles(tmp_path / "w", 0)) as files:
        push(files, {"a": b"x"}, {}, 0)
        checkouts.create(files, 7, 1, 0)
        hidden = checkouts.hide(files, 7)
        assert (hidden / "a").read_bytes() == b"x"
        assert checkouts.list_directories(files, before=99, limit=9) == []
        garbage.collect(files, pinned=(), running=(), before=0.0)
        assert list(files.tasks.iterdir()) == []


def test_a_directory_that_a_dead_server_had_hidden_can_be_deleted_again(tmp_path) -> None:
    make_directories(tmp_path / "w", 0)
    with closing(WorkspaceFiles(tmp_path / "w", 0)) as files:
        push(files, {"a": b"x"}, {}, 0)
        checkouts.create(files, 7, 1, 0)
        (files.tasks / "7").rename(files.tasks / ".7.gone")
        checkouts.hide(files, 7)
        assert checkouts.list_directories(files, before=99, limit=9) == []
        assert list(files.tasks.iterdir()) == []
        with pytest.raises(errors.NotFound, match="task 7 has no directory"):
            checkouts.hide(files, 7)


@pytest.mark.parametrize(
    ("workspace", "message"),
    [
        pytest.param("haiworkspace://none", "not found", id="no such workspace"),
        pytest.param(
            "haiworkspace://w", "has no revision yet; push first", id="nothing was pushed"
        ),
        pytest.param(
            "haiworkspace://w@7",
            "no revision 7 (any more); `hai workspace snapshots`",
            id="no such revision",
        ),
        pytest.param("haiworkspace://../w", "or haiworkspace://NAME", id="no name"),
        pytest.param("haiworkspace://w@1/../x", "or haiworkspace://NAME", id="a directory outside"),
    ],
)
async def test_a_submission_that_names_no_revision_is_refused(service, workspace, message) -> None:
    await service.pusher()
    with pytest.raises(Invalid) as refused:
        await service.client.tasks.create(spec(workspace))
    assert message in str(refused.value)


async def test_files_that_a_task_wrote_are_visible_to_its_user_only(service) -> None:
    pusher = await service.pusher()
    await pusher.push({"a": b"x"})
    with pytest.raises(NotFound):
        await pusher.fetch(0, "../../files/a", task=99)


async def test_a_pod_runs_in_the_directory_of_its_task(
    tmp_path: Path,
) -> None:
    code = b"print(open('data').read())"
    async with pod_deployment(tmp_path) as pods:
        pusher = await Pusher(pods.client, "w").create()
        await pusher.push({"run.py": code, "data": b"one"})
        done = await pods.run(spec("haiworkspace://w"))
        assert done.outcome == TaskOutcome.TASK_OUTCOME_SUCCEEDED, done
        assert (await pods.lines(done.id))[0] == "one"
