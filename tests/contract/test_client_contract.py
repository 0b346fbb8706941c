"""The contract of clients, which the fake in memory and the real server must fulfil in the same way.

Both nodes are cordoned, so no run starts. The tests of the fake and the end-to-end tests start and end runs.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from hai.client import errors
from hai.client.client import Client
from hai.client.fake.server import FakeClient
from hai.v1.artifact_pb2 import (
    ARTIFACT_DIRECTION_INPUT,
    ARTIFACT_DIRECTION_OUTPUT,
    Artifact,
)
from hai.v1.dataset_pb2 import (
    DATASET_VISIBILITY_PRIVATE,
    DATASET_VISIBILITY_PUBLIC,
    Dataset,
)
from hai.v1.environment_pb2 import ENVIRONMENT_STATE_READY, Environment
from hai.v1.environment_service_pb2 import EnvironmentDescription
from hai.v1.image_pb2 import Image, Registry
from hai.v1.message_service_pb2 import Message
from hai.v1.policy_pb2 import SchedulingPolicy
from hai.v1.storage_pb2 import MOUNT_ACTION_REMOVE, MountRule
from hai.v1.task_pb2 import (
    TASK_OUTCOME_CANCELED,
    TASK_STATE_FINISHED,
    TASK_STATE_WAITING_INIT,
    Task,
)
from hai.v1.task_service_pb2 import TASK_VIEW_FULL
from hai.v1.task_spec_pb2 import AfterSpec, TaskSpec
from hai.v1.user_pb2 import ROLE_ADMIN, ROLE_USER, TOKEN_SCOPE_READ, Grant, Quota, Share, User
from hai.v1.webhook_service_pb2 import Webhook
from tests.support.servers import running_server


@pytest.fixture(params=["fake", "server"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a cluster with two cordoned nodes, as an admin."""
    if request.param == "fake":
        async with FakeClient(nodes=["n0", "n1"]) as fake:
            await _cordon(fake, 2)
            yield fake
        return
    async with (
        running_server(tmp_path, nodes=2, webhooks="https://hooks.example.org") as server,
        Client(server.profile) as real,
    ):
        await _cordon(real, 2)
        yield real


async def _cordon(client: Client, nodes: int) -> None:
    """Cordon this number of nodes as they appear."""
    cordoned: set[str] = set()
    async with asyncio.timeout(10), aclosing(client.nodes.watch()) as answers:
        async for answer in answers:
            for name in {node.name for node in answer.nodes} - cordoned:
                await client.nodes.cordon(name)
                cordoned.add(name)
            if len(cordoned) == nodes:
                return


def spec(name: str = "bert", **options: Any) -> TaskSpec:
    """Return a valid spec."""
    result = TaskSpec(version=2, name=name)
    result.spec.entrypoint = "train.py"
    result.options.MergeFrom(type(result.options)(**options))
    return result


async def test_a_created_task_waits_and_can_be_read(client: Client) -> None:
    task = await client.tasks.create(spec(tags=["sweep"]))
    assert task.id > 0
    assert (task.name, task.state) == ("bert", TASK_STATE_WAITING_INIT)
    read = await client.tasks.get(task.id)
    assert (read.id, list(read.tags), read.spec.spec.entrypoint) == (task.id, ["sweep"], "train.py")
    assert read.create_time.seconds > 0


async def test_validation_creates_nothing(client: Client) -> None:
    assert (await client.tasks.create(spec(), validate_only=True)).id == 0
    assert list((await client.tasks.list()).tasks) == []


async def test_a_dry_run_creates_nothing(client: Client) -> None:
    answer = await client.tasks.dry_run(spec())
    assert answer.outcome in {"STARTS", "PROMISED", "WAITS", "NEVER"}
    assert (answer.task.id, bool(answer.message)) == (0, True)
    assert list((await client.tasks.list()).tasks) == []
    with pytest.raises(errors.Invalid):
        await client.tasks.dry_run(TaskSpec(version=2))


async def test_a_repeated_request_answers_with_the_first_task(client: Client) -> None:
    request = str(uuid.uuid4())
    first = await client.tasks.create(spec(), request_id=request)
    again = await client.tasks.create(spec(), request_id=request)
    assert first.id == again.id


async def test_every_violation_is_told_at_once(client: Client) -> None:
    with pytest.raises(errors.Invalid) as caught:
        await client.tasks.create(TaskSpec(version=2))
    assert {"name", "spec.entrypoint"} <= {v.field for v in caught.value.violations}


async def test_a_name_is_taken_until_its_task_is_finished(client: Client) -> None:
    first = await client.tasks.create(spec())
    with pytest.raises(errors.Conflict):
        await client.tasks.create(spec())
    await client.tasks.stop(first.id)
    assert (await client.tasks.create(spec())).id != first.id


async def test_a_task_may_wait_for_others(client: Client) -> None:
    first, other = await client.tasks.create(spec("first")), await client.tasks.create(spec("o"))
    after = [AfterSpec(task=first.id), AfterSpec(task=other.id, outcome="ended")]
    second = await client.tasks.create(spec("second", after=after))
    third = await client.tasks.create(spec("third", after=[AfterSpec(task=second.id)]))
    assert list((await client.tasks.get(second.id)).awaited) == [first.id, other.id]
    await client.tasks.stop(other.id)
    await _reaches(client, second.id, lambda task: list(task.awaited) == [first.id])
    await client.tasks.stop(first.id)
    for number in (second.id, third.id):
        await _reaches(client, number, lambda task: task.outcome == TASK_OUTCOME_CANCELED)


async def test_a_cancelled_task_hands_on_what_it_waited_for(client: Client) -> None:
    one, two = await client.tasks.create(spec("one")), await client.tasks.create(spec("two"))
    both = [AfterSpec(task=one.id), AfterSpec(task=two.id)]
    middle = await client.tasks.create(spec("middle", after=both))
    behind = [AfterSpec(task=middle.id, outcome="ended")]
    last = await client.tasks.create(spec("last", after=behind))
    await client.tasks.stop(one.id)
    await _reaches(client, last.id, lambda task: list(task.awaited) == [two.id])
    assert (await client.tasks.explain(last.id)).waiting.reason in ("AFTER", "")
    await client.tasks.stop(two.id)
    await _reaches(client, last.id, lambda task: not task.awaited)


async def _reaches(client: Client, number: int, true: Callable[[Task], bool]) -> None:
    async with asyncio.timeout(20):
        while not true(await client.tasks.get(number)):  # noqa: ASYNC110 - polls as a user would
            await asyncio.sleep(0.01)


async def test_what_no_task_can_wait_for(client: Client) -> None:
    first = await client.tasks.create(spec("first"))
    await client.tasks.stop(first.id)
    after = [AfterSpec(task=99), AfterSpec(task=first.id)]
    with pytest.raises(errors.Invalid) as caught:
        await client.tasks.create(spec("second", after=after))
    paths = [violation.field for violation in caught.value.violations]
    assert paths == ["options.after[0].task", "options.after[1].task"]
    after = [AfterSpec(task=first.id, outcome="ended")]
    third = await client.tasks.create(spec("third", after=after))
    await _reaches(client, third.id, lambda task: not task.awaited)


async def test_unknown_things_are_not_found(client: Client) -> None:
    for call in (client.tasks.get(99), client.tasks.stop(99), client.tasks.runs(99)):
        with pytest.raises(errors.NotFound):
            await call
    with pytest.raises(errors.NotFound):
        await client.nodes.get("nope")


async def test_pages_are_newest_first_and_complete(client: Client) -> None:
    ids = [(await client.tasks.create(spec(f"t{n}"))).id for n in range(5)]
    page = await client.tasks.list(page_size=2, count=True)
    assert [t.id for t in page.tasks] == ids[:2:-1]
    assert page.total == 5
    assert [t.id async for t in client.tasks.all(page_size=2)] == ids[::-1]
    assert [t.id async for t in client.tasks.all(order_by="id")] == ids


async def test_filters(client: Client) -> None:
    one = await client.tasks.create(spec("bert 1", tags=["sweep"]))
    two = await client.tasks.create(spec("gpt", tags=["big", "sweep"]))
    await client.tasks.star(two.id)

    async def found(text: str) -> list[int]:
        return [t.id async for t in client.tasks.all(filter=text, order_by="id")]

    assert await found("tag:sweep") == [one.id, two.id]
    assert await found("tag:sweep -tag:big") == [one.id]
    assert await found('name:"bert 1"') == [one.id]
    assert await found("name:g*") == [two.id]
    assert await found("starred:true state:waiting_init user:me") == [two.id]
    assert await found(f"id:{one.id},{two.id} state:running") == []
    three = await client.tasks.create(spec("eval", after=[AfterSpec(task=one.id)]))
    assert await found(f"after:{one.id},{three.id}") == [three.id]
    assert await found(f"after:{two.id}") == []
    with pytest.raises(errors.Invalid):
        await found("colour:red")


async def test_views(client: Client) -> None:
    await client.tasks.create(spec())
    basic = await client.tasks.list()
    full = await client.tasks.list(view=TASK_VIEW_FULL)
    assert [basic.tasks[0].HasField("spec"), full.tasks[0].HasField("spec")] == [False, True]


@pytest.mark.parametrize(
    ("ref", "kind"),
    [
        pytest.param("{id}", "auto", id="id"),
        pytest.param("{id}", "id", id="id said"),
        pytest.param("12 monkeys", "auto", id="name"),
        pytest.param("{yaml}", "auto", id="yaml file"),
        pytest.param("{yaml}", "yaml", id="yaml file said"),
    ],
)
async def test_references(client: Client, tmp_path: Path, ref: str, kind: Any) -> None:
    file = tmp_path / "task.yaml"
    file.write_text("version: 2\nname: 12 monkeys\nspec: {entrypoint: a.py}\n")
    await client.tasks.stop((await client.tasks.create(spec("12 monkeys"))).id)
    task = await client.tasks.create(spec("12 monkeys"))
    await client.tasks.create(spec("12 monkeys and more"))
    assert await client.tasks.resolve(ref.format(id=task.id, yaml=file), kind) == task.id


@pytest.mark.parametrize(
    "name", ["2024", 'say "hi"', "a,b", "-x", "b*t", "任务", "a#b", "back\\slash", "user:me"]
)
async def test_any_name_resolves(client: Client, name: str) -> None:
    await client.tasks.create(spec("beet"))
    task = await client.tasks.create(spec(name))
    assert await client.tasks.resolve(name, "name") == task.id


async def test_references_to_nothing(client: Client) -> None:
    with pytest.raises(errors.NotFound, match="nope"):
        await client.tasks.resolve("nope")
    with pytest.raises(errors.UsageError):
        await client.tasks.resolve("nope", "id")
    with pytest.raises(errors.UsageError):
        await client.tasks.resolve("nope.yaml", "yaml")
    with pytest.raises(errors.UsageError):
        await client.tasks.resolve("  ")


async def test_stopping_twice_is_no_error(client: Client) -> None:
    task = await client.tasks.create(spec())
    for _ in range(2):
        stopped = await client.tasks.stop(task.id)
        assert (stopped.state, stopped.outcome) == (TASK_STATE_FINISHED, TASK_OUTCOME_CANCELED)


async def test_steering(client: Client) -> None:
    task = await client.tasks.create(spec(tags=["a"]))
    assert (await client.tasks.set_priority(task.id, 30)).priority == 30
    assert set((await client.tasks.tag(task.id, ["b"], ["a"])).tags) == {"b"}
    assert (await client.tasks.star(task.id)).starred
    assert not (await client.tasks.star(task.id, False)).starred
    assert (await client.tasks.suspend(task.id, hold=True)).held
    assert not (await client.tasks.resume(task.id)).held


async def test_a_finished_task_cannot_be_steered(client: Client) -> None:
    task = await client.tasks.create(spec())
    await client.tasks.stop(task.id)
    for call in (client.tasks.suspend(task.id), client.tasks.set_priority(task.id, 30)):
        with pytest.raises(errors.Conflict):
            await call


async def test_moving_reorders_the_queue(client: Client) -> None:
    ids = [(await client.tasks.create(spec(f"t{n}"))).id for n in range(3)]
    await client.tasks.move(ids[2])
    await client.tasks.move(ids[1], before=ids[2])
    ranks = {id: (await client.tasks.get(id)).custom_rank for id in ids}
    assert sorted(ids, key=lambda id: ranks[id]) == [ids[1], ids[2], ids[0]]


async def test_a_watch_tells_what_is_and_what_comes(client: Client) -> None:
    first = await client.tasks.create(spec("first"))
    watch = client.tasks.watch()
    seen = await _until(watch, first.id)
    second = await client.tasks.create(spec("second"))
    assert (await _until(watch, second.id)).version > seen.version
    await client.tasks.stop(first.id)
    while (await _until(watch, first.id)).state != TASK_STATE_FINISHED:
        pass
    await watch.aclose()


async def test_a_watch_resumes_from_a_version(client: Client) -> None:
    first = await client.tasks.create(spec("first"))
    version = (await client.tasks.get(first.id)).version
    second = await client.tasks.create(spec("second"))
    watch = client.tasks.watch("name:first,second", version)
    answer = await asyncio.wait_for(anext(watch), 10)
    assert second.id in [t.id for t in answer.tasks]
    await watch.aclose()


async def _until(watch: AsyncIterator[Any], id: int) -> Any:
    async with asyncio.timeout(10):
        async for answer in watch:
            for task in answer.tasks:
                if task.id == id:
                    return task
    raise AssertionError("a watch never ends by itself")


async def test_waiting_ends_with_the_task(client: Client) -> None:
    task = await client.tasks.create(spec())
    waiting = asyncio.create_task(client.tasks.wait(task.id, timeout=10))
    await asyncio.sleep(0)
    await client.tasks.stop(task.id)
    assert (await waiting).outcome == TASK_OUTCOME_CANCELED
    assert (await client.tasks.wait(task.id, timeout=10)).state == TASK_STATE_FINISHED


async def test_the_timeline_is_in_order(client: Client) -> None:
    task = await client.tasks.create(spec())
    await client.tasks.stop(task.id)
    events = await client.tasks.events(task.id)
    sequences = [event.sequence for event in events]
    assert sequences == sorted(set(sequences))
    assert len(sequences) >= 2
    later = await client.tasks.events(task.id, after=sequences[0])
    assert [event.sequence for event in later] == sequences[1:]


async def test_a_task_that_never_ran_has_no_runs_and_no_lines(client: Client) -> None:
    task = await client.tasks.create(spec())
    assert list(await client.tasks.runs(task.id)) == []
    assert [line async for answer in client.logs.tail(task.id) for line in answer.lines] == []


async def test_following_the_logs_of_a_stopped_task_ends(client: Client) -> None:
    task = await client.tasks.create(spec())
    await client.tasks.stop(task.id)
    async with asyncio.timeout(10):
        assert [a async for a in client.logs.tail(task.id, follow=True) if a.lines] == []


async def test_nodes(client: Client) -> None:
    names = [node.name for node in await client.nodes.list()]
    assert len(names) == 2
    assert names == sorted(names)
    assert not (await client.nodes.uncordon(names[1])).cordoned
    assert (await client.nodes.cordon(names[0], "broken fan")).cordoned
    node = await client.nodes.get(names[0])
    assert node.cordoned
    assert "broken fan" in node.reason
    assert [(g.nodes, g.usable_nodes) for g in await client.nodes.groups()] == [(2, 1)]
    assert (await client.nodes.update_group(node.group, True)).packed


async def test_labels_of_a_node(client: Client) -> None:
    name = (await client.nodes.list())[0].name
    first = {"rack": "r7", "old": ""}
    assert (await client.nodes.label(name, first)).labels == first
    await client.nodes.label(name, {"rack": "r8"}, remove=["old", "never-there"])
    assert (await client.nodes.get(name)).labels == {"rack": "r8"}
    with pytest.raises(errors.NotFound):
        await client.nodes.label("nope", {"rack": "r7"})


async def test_a_snapshot_of_the_scheduler(client: Client) -> None:
    text = b"".join([part async for part in client.nodes.snapshot(anonymous=True)])
    found = json.loads(text)
    assert (found["format"], found["version"]) == ("hai.snapshot", 1)


async def test_settings_of_a_group(client: Client) -> None:
    group = (await client.nodes.list())[0].group
    policy = SchedulingPolicy(staying=2, default_quota=3, demotion={})
    shown = await client.nodes.update_group(group, policy=policy, preview=True)
    assert shown.HasField("effect")
    assert shown.policy == policy
    assert (await client.nodes.groups())[0].policy == SchedulingPolicy()
    assert (await client.nodes.update_group(group, policy=policy)).policy_in_force.staying == 2
    after = await client.nodes.update_group(group, unset=["staying", "demotion"])
    assert after.policy == SchedulingPolicy(default_quota=3)
    assert not after.packed
    assert (await client.nodes.groups())[0].policy == after.policy


async def test_a_watch_of_nodes(client: Client) -> None:
    watch = client.nodes.watch()
    async with asyncio.timeout(10):
        first = await anext(watch)
        assert len(first.nodes) == 2
        name = first.nodes[0].name
        await client.nodes.uncordon(name)
        async for answer in watch:
            if any(n.name == name and not n.cordoned for n in answer.nodes):
                break
    await watch.aclose()


async def test_tasks_and_nodes_on_one_stream(client: Client) -> None:
    old = await client.tasks.stop((await client.tasks.create(spec("old"))).id)
    async with (
        asyncio.timeout(10),
        aclosing(client.watches.tasks_and_nodes(tasks_after=old.version)) as answers,
    ):
        new, node = await client.tasks.create(spec("new")), (await client.nodes.list())[0]
        await client.nodes.uncordon(node.name)
        tasks: set[int] = set()
        while new.id not in tasks or node.cordoned:
            answer = await anext(answers)
            tasks |= {task.id for task in answer.tasks.tasks}
            node = next((n for n in answer.nodes.nodes if n.name == node.name), node)
    assert old.id not in tasks


async def test_quotas(client: Client) -> None:
    me = (await client.users.whoami()).user.name
    await client.users.set_quota(Quota(subject=me, group="default", priority=30, nodes=2))
    assert [q.nodes for q in await client.users.quotas(me) if q.priority == 30] == [2]
    await client.users.delete_quota(me, "default", 30)
    assert [q.nodes for q in await client.users.quotas(me) if q.priority == 30] == []


async def test_shares(client: Client) -> None:
    group = (await client.nodes.list())[0].group
    wanted = Share(user_group="vision", group=group, guaranteed=1, weight=3, limit=2)
    assert await client.users.set_share(wanted) == wanted
    new = await client.users.set_share(Share(user_group="speech", group=group, held=7))
    assert new == Share(user_group="speech", group=group)
    assert list(await client.users.shares()) == [new, wanted]
    assert list(await client.users.shares("vision")) == [wanted]
    assert list(await client.users.shares(group="elsewhere")) == []
    await client.users.delete_share("vision", group)
    assert list(await client.users.shares(group=group)) == [new]
    with pytest.raises(errors.NotFound):
        await client.users.delete_share("vision", group)


async def test_rights(client: Client) -> None:
    me = (await client.users.whoami()).user.name
    wanted = Grant(subject="vision", subject_is_group=True, right="image:r.example/vision")
    assert await client.users.grant(wanted) == wanted
    own = await client.users.grant(Grant(subject=me, right="assign_nodes"))
    own.expire_time.FromSeconds(4_000_000_000)
    assert await client.users.grant(own) == own
    assert list(await client.users.rights()) == [own, wanted]
    assert list(await client.users.rights("vision")) == [wanted]
    await client.users.revoke(me, "assign_nodes")
    assert list(await client.users.rights()) == [wanted]
    with pytest.raises(errors.NotFound):
        await client.users.revoke(me, "assign_nodes")


async def test_tokens_may_be_held_by_others(client: Client) -> None:
    await client.users.create(User(name="bob", role=ROLE_USER, active=True))
    made = await client.users.create_token(scope=TOKEN_SCOPE_READ, holder="bob")
    assert made.holder == "bob"
    assert [t.id for t in await client.users.tokens("bob")] == [made.id]
    me = (await client.users.whoami()).user.name
    assert (await client.users.create_token(holder=me)).holder == ""


async def test_ports(client: Client) -> None:
    ssh = await client.ports.create("notebook", "ssh")
    web = await client.ports.create("notebook", "web")
    assert (ssh.node_port, web.node_port) == (30_000, 30_001)
    assert (ssh.task_name, ssh.service, bool(ssh.user)) == ("notebook", "ssh", True)
    for taken in (
        client.ports.create("notebook", "ssh"),
        client.ports.create("other", "ssh", node_port=30_000),
        client.ports.bind(30_001, "notebook", "ssh"),
    ):
        with pytest.raises(errors.Conflict):
            await taken
    moved = await client.ports.bind(30_001, "notebook-2", "ssh")
    assert moved.task_name == "notebook-2"
    assert list(await client.ports.list()) == [ssh, moved]
    await client.ports.delete(30_000)
    assert list(await client.ports.list("*")) == [moved]
    for gone in (client.ports.delete(30_000), client.ports.bind(30_000, "t", "ssh")):
        with pytest.raises(errors.NotFound):
            await gone


async def test_artifacts(client: Client) -> None:
    task, me = await client.tasks.create(spec()), (await client.users.whoami()).user.name
    model = await client.artifacts.create(Artifact(name="model", type="weights", location="/ws/m"))
    assert (model.version, model.owner, model.user_group) == ("default", me, "")
    await client.users.update(User(name=me, role=ROLE_ADMIN, active=True, groups=["vision"]))
    shared = await client.artifacts.create(Artifact(name="m", version="2", user_group="vision"))
    with pytest.raises(errors.Conflict):
        await client.artifacts.create(Artifact(name="model"))
    assert list(await client.artifacts.list()) == [shared, model]
    assert list(await client.artifacts.list("model")) == [model]
    assert list(await client.artifacts.list(user_group="vision")) == [shared]
    shared.description = "the good one"
    changed = await client.artifacts.update(shared)
    assert changed.description == "the good one"
    assert await client.artifacts.get("m", "2", "vision") == changed
    await client.artifacts.map(task.id, ARTIFACT_DIRECTION_OUTPUT, "model")
    await client.artifacts.map(task.id, ARTIFACT_DIRECTION_INPUT, "model")
    await client.artifacts.map(task.id, ARTIFACT_DIRECTION_INPUT, "m", "2", "vision")
    assert [a.artifact.name for a in await client.artifacts.of_task(task.id)] == ["m", "model"]
    await client.artifacts.delete("model")
    assert [a.artifact.name for a in await client.artifacts.of_task(task.id)] == ["m"]
    await client.artifacts.unmap(task.id)
    assert list(await client.artifacts.of_task(task.id)) == []
    for gone in (client.artifacts.get("model"), client.artifacts.delete("model")):
        with pytest.raises(errors.NotFound):
            await gone


async def test_datasets(client: Client) -> None:
    wanted = Dataset(
        name="imagenet",
        version="2012",
        path="/data/imagenet",
        visibility=DATASET_VISIBILITY_PUBLIC,
        size_bytes=150 << 30,
    )
    made = await client.datasets.create(wanted)
    assert (made.version, made.path, bool(made.owner)) == ("2012", "/data/imagenet", True)
    with pytest.raises(errors.Conflict):
        await client.datasets.create(wanted)
    private = DATASET_VISIBILITY_PRIVATE
    other = await client.datasets.create(Dataset(name="mine", path="/x", visibility=private))
    assert list(await client.datasets.list()) == [made, other]
    assert list(await client.datasets.list("mine")) == [other]
    assert await client.datasets.get("mine") == other
    await client.datasets.delete("mine", "default")
    for gone in (client.datasets.get("mine"), client.datasets.delete("mine")):
        with pytest.raises(errors.NotFound):
            await gone


async def test_environments(client: Client) -> None:
    environments = client.environments
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    lock = f"# haienv lock 1\n# python {minor}\n"
    wanted = EnvironmentDescription(name="torch", python_version=minor, lock=lock)
    for missing in (environments.get("torch"), environments.delete("torch")):
        with pytest.raises(errors.NotFound):
            await missing
    *lines, made = [answer async for answer in environments.build(wanted, {})]
    assert isinstance(made, Environment), lines
    assert (made.name, made.state) == ("torch", ENVIRONMENT_STATE_READY)
    assert made.path == f"{await environments.root()}/{made.owner}/torch"
    assert [e.name for e in await environments.list()] == ["torch"]
    assert [e.name for e in await environments.list("nobody")] == []
    assert (await environments.get("torch", made.owner)).lock_hash == made.lock_hash
    assert (await environments.export("torch")).lock == lock
    assert (await environments.register(Environment(name="torch"))).name == "torch"
    await environments.delete("torch")
    assert list(await environments.list()) == []


async def test_workspaces(client: Client) -> None:
    for name in ("train", "eval"):
        assert (await client.workspaces.create(name)).revision == 0
    with pytest.raises(errors.Conflict):
        await client.workspaces.create("eval")
    assert [w.name for w in await client.workspaces.list()] == ["eval", "train"]
    assert not (await client.workspaces.revisions("eval")).revisions
    await client.workspaces.delete("eval")
    assert [w.name for w in await client.workspaces.list("*")] == ["train"]
    with pytest.raises(errors.NotFound):
        await client.workspaces.get("eval")


async def test_messages(client: Client) -> None:
    me = (await client.users.whoami()).user.name
    await client.users.create(User(name="bob", role=ROLE_USER, active=True))
    all = await client.messages.create(Message(text="hello"))
    mine = await client.messages.create(Message(text="hello you", subject=me))
    await client.messages.create(Message(text="hello bob", subject="bob"))
    group = Message(text="hello there", subject="vision", subject_is_group=True)
    await client.messages.create(group)
    assert (all.id, all.author) == (1, me)
    assert list(await client.messages.list()) == [mine, all]
    assert len(await client.messages.list(all=True)) == 4
    await client.messages.delete(mine.id)
    assert list(await client.messages.list()) == [all]
    with pytest.raises(errors.NotFound):
        await client.messages.delete(mine.id)


async def test_webhooks(client: Client) -> None:
    phone = Webhook(name="phone", url="https://hooks.example.org/x", news=["failed", "started"])
    made = await client.webhooks.set(phone)
    assert (list(made.webhook.news), made.webhook.format) == (["started", "failed"], "json")
    assert made.secret.startswith("whsec_")
    again = await client.webhooks.set(Webhook(name="phone", url=phone.url, tag="sweep"))
    assert (list(again.webhook.news), again.secret) == (["ended"], "")
    assert list(await client.webhooks.list()) == [again.webhook]
    chat = await client.webhooks.set(Webhook(name="phone", url=phone.url, format="slack"))
    assert (chat.webhook.format, chat.secret) == ("slack", "")
    assert (await client.webhooks.set(phone)).secret.startswith("whsec_")
    with pytest.raises(errors.Invalid):
        await client.webhooks.set(Webhook(url="no address"))
    await client.webhooks.delete("phone")
    assert list(await client.webhooks.list()) == []
    with pytest.raises(errors.NotFound):
        await client.webhooks.test("phone")


async def test_mount_rules(client: Client) -> None:
    data = MountRule(owners=["public"], mount_path="/data", source="/srv/data", writable=True)
    made = await client.storage.create_rule(data, validate_only=True)
    assert list(await client.storage.rules()) == []
    made = await client.storage.create_rule(data)
    assert (made.rule.id, list(made.warnings)) == (1, [])
    with pytest.raises(errors.Conflict):
        await client.storage.create_rule(data)
    found = (await client.storage.mounts()).mounts
    assert [(m.mount_path, m.source, m.writable) for m in found] == [("/data", "/srv/data", True)]
    gone = MountRule(owners=["public"], mount_path="/data", action=MOUNT_ACTION_REMOVE)
    last = (await client.storage.create_rule(gone)).rule
    await client.storage.delete_rule(made.rule.id)
    assert list(await client.storage.rules()) == [last]
    assert list((await client.storage.mounts()).mounts) == []
    with pytest.raises(errors.NotFound):
        await client.storage.delete_rule(made.rule.id)


async def test_images(client: Client) -> None:
    torch = Image(name="torch", reference="r.example/base/torch:2", is_default=True)
    assert await client.images.set(torch) == torch
    lab = Image(name="lab", reference="r.example/lab", user_groups=["vision"], is_default=True)
    await client.images.set(lab)
    assert [(i.name, i.is_default) for i in await client.images.list()] == [
        ("lab", True),
        ("torch", False),
    ]
    await client.images.delete("lab")
    assert [i.name for i in await client.images.list()] == ["torch"]
    for refused in (client.images.delete("lab"), client.images.check("lab")):
        with pytest.raises(errors.NotFound):
            await refused


async def test_registries_show_no_password(client: Client) -> None:
    robot = Registry(prefix="r.example/lab", username="robot", pull_secret="login")
    assert not (await client.images.set_registry(robot)).has_password
    kept = await client.images.set_registry(robot, "hunter2")
    assert kept.has_password
    assert (await client.images.set_registry(robot)).has_password
    assert list(await client.images.registries()) == [kept]
    await client.images.delete_registry("r.example/lab")
    with pytest.raises(errors.NotFound):
        await client.images.delete_registry("r.example/lab")


async def test_tokens_show_their_secret_once(client: Client) -> None:
    token = await client.users.create_token(scope=TOKEN_SCOPE_READ, description="ci")
    assert token.secret
    listed = {t.id: t for t in await client.users.tokens()}
    assert (listed[token.id].secret, listed[token.id].description) == ("", "ci")
    assert (await client.users.revoke_token(token.id)).revoked


async def test_the_server_says_who_it_is(client: Client) -> None:
    info = await client.server.info()
    assert info.protocol == "hai.v1"
    assert info.version


async def test_use_of_a_task_that_never_ran_is_empty(client: Client) -> None:
    task = await client.tasks.create(spec())
    answer = await client.usage.of_task(task.id)
    together = await client.usage.of_task(task.id, sum=True)
    assert (list(answer.ranks), list(together.sum)) == ([], [])
    assert answer.step_seconds == 60
    assert list((await client.usage.of_nodes()).nodes) == []
    with pytest.raises(errors.NotFound):
        await client.usage.of_task(99)
    with pytest.raises(errors.Invalid, match="from 2 to 500"):
        await client.usage.of_task(task.id, points=501)
    with pytest.raises(errors.Invalid, match="from 2 to 500"):
        await client.usage.of_cluster(points=1)


async def test_audit_of_nobody_is_empty(client: Client) -> None:
    assert [row async for row in client.audit.rows(actor="nobody", failed=True)] == []
