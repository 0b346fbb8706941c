"""The contract of store.base.Store, tested for every store."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from hai_backend.domain.accounts.message import Message
from hai_backend.domain.accounts.right import Grant
from hai_backend.domain.accounts.user import Quota, Role, Share, Token, TokenScope, User
from hai_backend.domain.accounts.webhook import Format, Notice, Webhook, WebhookEvent
from hai_backend.domain.catalog.artifact import Artifact, Direction, TaskArtifact
from hai_backend.domain.catalog.dataset import Dataset, Visibility
from hai_backend.domain.catalog.image import Image, Registry
from hai_backend.domain.catalog.port import Port
from hai_backend.domain.environment import Environment, EnvironmentState
from hai_backend.domain.errors import Conflict, Invalid
from hai_backend.domain.mounts.mount import HostPathType, MountAction, MountKind, MountRow
from hai_backend.domain.node import Group, Node, NodeState
from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Progress
from hai_backend.domain.spec import (
    NodeResourceSpec,
    OnEnd,
    OptionsSpec,
    PolicySpec,
    ProfileSpec,
    ProgramSpec,
    ResourceSpec,
    RoleSpec,
    ServiceSpec,
    ServiceType,
    TaskSpec,
    TaskType,
)
from hai_backend.domain.task import (
    Outcome,
    Rank,
    RankState,
    Run,
    RunState,
    StopCode,
    Task,
    TaskEvent,
    TaskState,
)
from hai_backend.store.base import ORDERS, Store, TaskFilter, TaskQuery
from hai_backend.store.sql.records import TABLES

SUBMITTED = TaskEvent(1.5, "alice", "TaskSubmitted", "hai python train.py")
FULL_SPEC = TaskSpec(
    name="训练-1",
    spec=ProgramSpec(
        "train.py",
        "/ws",
        ("--a", 'b "c" $(x);\n\0'),
        {"K": "v", "空": ""},
        True,
        "https://git",
        "main",
    ),
    task_type=TaskType.JUPYTER,
    priority=Priority.HIGH,
    resource=ResourceSpec("img", "big", "z1", 3, True, 4, 8, 16),
    services=(ServiceSpec("tb", ServiceType.LOCAL, 0, (0, 2), "tensorboard", True),),
    options=OptionsSpec(
        7,
        3,
        "env[bob]",
        NodeResourceSpec(4, 8),
        ProfileSpec(1, "gpu", {"gpu": 2}, 3, True, True),
        ("sweep",),
        60,
        True,
        True,
        ("n1", "n2"),
        ("side",),
        True,
        10,
        20,
        3,
        "SIGUSR1",
        1.25,
        0.1,
        True,
    ),
    roles=(RoleSpec("master", 1, "m.py", ("-x",), {"A": "1"}, 1, 2, 3),),
    policies=PolicySpec(OnEnd.RESTART, OnEnd.FAIL, OnEnd.COMPLETE, 2),
)


def spec(name: str = "t", group: str = "default", **options: Any) -> TaskSpec:
    return TaskSpec(
        name,
        ProgramSpec("a.py"),
        resource=ResourceSpec(group=group),
        options=OptionsSpec(**options),
    )


def task(name: str = "t", user: str = "alice", **fields: Any) -> Task:
    base = Task(0, user, spec(name), TaskState.WAITING_INIT, Priority.NORMAL, 1000.0)
    return replace(base, **fields)


def run(number: int = 1, size: int = 2, **fields: Any) -> Run:
    ranks = tuple(Rank(i, f"n{i}") for i in range(size))
    return replace(Run(number, RunState.CREATED, ranks, 1001.0, Priority.NORMAL), **fields)


def next_revision(task: Task, **fields: Any) -> Task:
    return replace(task, revision=task.revision + 1, **fields)


async def save(store: Store, task: Task, *events: TaskEvent, **fields: Any) -> Task:
    written = await store.save_task(next_revision(task, **fields), events)
    assert written is not None
    return written


# creating


async def test_a_created_task_has_an_id_a_revision_and_a_version(store: Store) -> None:
    before = await store.version()
    created = await store.create_task(task(), [SUBMITTED])
    assert created == replace(task(), id=created.id, revision=1, version=before + 1)
    assert created.id > 0
    assert await store.get_task(created.id) == created
    assert await store.version() == created.version


async def test_no_task_gets_a_skipped_id(store: Store) -> None:
    await store.skip_task_ids(40)
    assert (await store.create_task(task("a"), [])).id == 41
    await store.skip_task_ids(7)
    assert (await store.create_task(task("b"), [])).id == 42
    assert [t.id for t in await store.unfinished_tasks()] == [41, 42]


async def test_every_field_of_a_task_is_stored(store: Store) -> None:
    rank = Rank(
        1,
        "n1",
        RankState.FAILED,
        "w",
        "10.0.0.1",
        29500,
        137,
        "最后",
        3.25,
        4.1,
        (2, 3),
        3.9,
        2**40,
        2**62,
    )
    full = Task(
        id=0,
        user="bob",
        spec=FULL_SPEC,
        state=TaskState.FINISHED,
        priority=Priority.AUTO,
        created_at=1763723720.123457,
        custom_rank=-0.1,
        tags=("b", "a"),
        starred=True,
        whole_life_state=-(2**63),
        outcome=Outcome.FAILED,
        wanted_outcome=Outcome.STOPPED,
        reason="ended, 原因",
        held=True,
        not_before=0.1 + 0.2,
        suspend_count=1,
        failure_count=2,
        node_failure_count=3,
        launch_failure_count=4,
        run_seconds=1e-9,
        started_at=5.5,
        finished_at=6.6,
        run=Run(
            number=3,
            state=RunState.ENDED,
            ranks=(Rank(0, "n0"), rank),
            created_at=7.7,
            priority=Priority.LOW,
            whole_life_state=8,
            stop_code=StopCode.FAILED | StopCode.TIMEOUT,
            reason="r",
            suspended_for=9,
            started_at=10.1,
            ended_at=11.1,
            deadline=12.1,
            asked_at=13.1,
            acknowledged_at=13.4,
            yielded=True,
            killed_at=1009.5,
        ),
        progress=Progress(0.5, 7, 0.1, 0.0, 1e-9, True, 1e9, 0.3, 0.2, 4),
    )
    created = await store.create_task(full, [])
    found = await store.get_task(created.id)
    assert found == replace(full, id=created.id, revision=1, version=created.version)
    assert type(found.held) is bool
    assert type(found.run.yielded) is bool
    assert type(found.progress.yields) is bool


async def test_a_missing_task_is_none(store: Store) -> None:
    assert await store.get_task(99) is None
    assert await store.task_runs(99) == []
    assert await store.task_events(99) == []


async def test_a_repeated_request_returns_the_first_task(store: Store) -> None:
    first = await store.create_task(task("a"), [SUBMITTED], "r1")
    changed = await save(store, first, reason="changed")
    assert await store.create_task(task("a"), [SUBMITTED], "r1") == changed
    assert await store.create_task(task("b"), [SUBMITTED], "r1") == changed
    assert await store.task_events(first.id) == [(1, SUBMITTED)]
    other = await store.create_task(task("a", user="bob"), [], "r1")
    assert other.id != first.id


async def test_the_task_of_a_request_is_returned_in_its_current_state(store: Store) -> None:
    first = await store.create_task(task("a"), [], "r1")
    await store.create_task(task("b"), [])
    ended = await save(store, first, state=TaskState.FINISHED, outcome=Outcome.STOPPED)
    assert await store.get_task_by_request("alice", "r1") == ended
    for user, request in (("bob", "r1"), ("alice", "r2"), ("alice", "")):
        assert await store.get_task_by_request(user, request) is None


async def test_concurrent_repeated_requests_create_one_task(store: Store) -> None:
    created = await asyncio.gather(
        *(store.create_task(task(), [SUBMITTED], "r") for _ in range(20))
    )
    assert len({t.id for t in created}) == 1
    assert (await store.find_tasks(TaskQuery(count=True))).total == 1


async def test_calls_without_request_id_are_different_requests(store: Store) -> None:
    first = await store.create_task(task("a"), [])
    assert (await store.create_task(task("b"), [])).id != first.id


async def test_a_name_is_in_use_until_its_task_is_finished(store: Store) -> None:
    first = await store.create_task(task("bert"), [])
    with pytest.raises(Conflict, match=f"alice.*'bert'.*task {first.id}") as error:
        await store.create_task(task("bert"), [])
    assert error.value.reason == "NAME_TAKEN"
    await store.create_task(task("bert", user="bob"), [])
    await save(store, first, state=TaskState.FINISHED)
    await store.create_task(task("bert"), [])


async def test_of_concurrent_creates_with_one_name_one_succeeds(store: Store) -> None:
    results = await asyncio.gather(
        *(store.create_task(task("same"), [SUBMITTED]) for _ in range(10)),
        *(store.create_task(task(f"other{i}"), [SUBMITTED]) for i in range(10)),
        return_exceptions=True,
    )
    assert sum(isinstance(r, Conflict) for r in results) == 9
    assert sum(isinstance(r, Task) for r in results) == 11
    assert len(await store.unfinished_tasks()) == 11


# saving


async def test_a_save_needs_the_next_revision(store: Store) -> None:
    first = await store.create_task(task(), [SUBMITTED])
    placed = TaskEvent(2.0, "scheduler", "RunPlaced", "why", 1, 0)
    second = await save(store, first, placed, state=TaskState.RUNNING, run=run(), tags=("x",))
    assert second.version > first.version
    assert await store.get_task(first.id) == second
    assert await store.save_task(next_revision(first, reason="outdated"), [placed]) is None
    assert await store.save_task(replace(second, revision=9), []) is None
    assert await store.save_task(replace(second, id=77), []) is None
    assert await store.get_task(first.id) == second
    assert await store.task_events(first.id) == [(1, SUBMITTED), (2, placed)]
    assert await store.task_events(first.id, after=1) == [(2, placed)]


async def test_an_outdated_save_does_not_fail_the_rest_of_the_batch(store: Store) -> None:
    tasks = [await store.create_task(task(f"t{i}"), []) for i in range(10)]
    outdated = replace(tasks[0], reason="outdated")
    valid = [next_revision(t, reason="valid") for t in tasks]
    results = await asyncio.gather(
        *(store.save_task(t, []) for t in [*valid[:5], outdated, *valid[5:]])
    )
    assert [r is None for r in results].index(True) == 5
    assert [t.reason for t in await store.unfinished_tasks()] == ["valid"] * 10
    assert results.count(None) == 1


async def test_of_concurrent_saves_of_one_revision_one_succeeds(store: Store) -> None:
    first = await store.create_task(task(), [])
    event = TaskEvent(2.0, "a", "Changed")
    saves = (store.save_task(next_revision(first, reason=str(i)), [event]) for i in range(8))
    saved = [t for t in await asyncio.gather(*saves) if t is not None]
    assert [await store.get_task(first.id)] == saved
    assert len(await store.task_events(first.id)) == 1


async def test_successive_saves_of_a_task_may_be_in_one_batch(store: Store) -> None:
    first = await store.create_task(task(), [SUBMITTED])
    second = next_revision(first, state=TaskState.RUNNING, run=run(), tags=("a",))
    third = next_revision(second, run=run(state=RunState.BUILDING), tags=("b", "c"))
    event = TaskEvent(2.0, "a", "Changed")
    await asyncio.gather(store.save_task(second, [event]), store.save_task(third, [event, event]))
    found = await store.get_task(first.id)
    assert found == replace(third, version=found.version if found else 0)
    assert [n for n, _ in await store.task_events(first.id)] == [1, 2, 3, 4]
    assert [n for n, _ in await store.task_events(first.id, 1, 2)] == [2, 3]
    page = await store.find_tasks(TaskQuery(TaskFilter(tags=frozenset({"a"}))))
    assert page.tasks == ()


async def test_all_runs_are_stored_and_the_last_one_is_current(store: Store) -> None:
    created = await store.create_task(task(), [])
    second = await save(store, created, run=run(1), state=TaskState.RUNNING)
    ended_ranks = tuple(replace(r, state=RankState.STOPPED, exit_code=-9) for r in run().ranks)
    ended = run(1, state=RunState.ENDED, ended_at=9.0, ranks=ended_ranks)
    third = await save(store, second, run=ended, state=TaskState.SUSPENDED)
    fourth = await save(store, third, run=run(2, 3), state=TaskState.RUNNING)
    assert await store.get_task(created.id) == fourth
    assert await store.task_runs(created.id) == [ended, run(2, 3)]
    assert await store.task_runs(created.id, limit=1) == [ended]
    assert await store.task_runs(created.id, 1) == [run(2, 3)]
    assert await store.task_runs(created.id, 2) == []
    assert await store.unfinished_tasks() == [fourth]


async def test_changes_of_single_ranks_are_stored(store: Store) -> None:
    current = await store.create_task(task(), [])
    current = await save(store, current, run=run(1, 12), state=TaskState.RUNNING)
    for index in (10, 3, 11):
        ranks = list(current.run.ranks) if current.run else []
        ranks[index] = replace(ranks[index], state=RankState.RUNNING, address="10.0.0.1")
        current = await save(store, current, run=run(1, 12, ranks=tuple(ranks)))
    assert await store.get_task(current.id) == current


async def test_a_task_can_end_with_a_text_that_databases_refuse(store: Store) -> None:
    created = await store.create_task(task(), [])
    ranks = (Rank(0, "n0", last_lines="a\0b\udc80"),)
    changes = {"state": TaskState.FINISHED, "reason": "x\0y"}
    await save(store, created, TaskEvent(1.0, "a", "b", "\0"), run=run(ranks=ranks), **changes)
    found = await store.get_task(created.id)
    assert found is not None
    assert found.state is TaskState.FINISHED
    assert found.run is not None
    assert found.run.ranks[0].last_lines.startswith("a")


# versions


async def test_changed_tasks_are_ordered_by_version(store: Store) -> None:
    tasks = [await store.create_task(task(f"t{i}"), []) for i in range(5)]
    start = await store.version()
    changed = [await save(store, tasks[i], reason="x") for i in (3, 0)]
    assert await store.changed_tasks(start, 10) == changed
    assert await store.changed_tasks(start, 1) == changed[:1]
    assert await store.changed_tasks(await store.version(), 10) == []
    assert len(await store.changed_tasks(0, 100)) == 5


async def test_versions_become_visible_in_order(store: Store) -> None:
    versions: list[int] = []
    done = asyncio.Event()

    async def watch() -> None:
        while not (done.is_set() and len(versions) >= 100):
            changed = await store.changed_tasks(versions[-1] if versions else 0, 1000)
            versions.extend(t.version for t in changed)
            await asyncio.sleep(0)

    watcher = asyncio.create_task(watch())
    created = await asyncio.gather(*(store.create_task(task(f"t{i}"), []) for i in range(100)))
    done.set()
    await asyncio.wait_for(watcher, 30)
    assert versions == sorted(t.version for t in created)


async def test_changes_of_nodes_get_versions(store: Store) -> None:
    before = await store.version()
    await store.save_nodes([Node("n1")])
    await store.delete_nodes(["n1"])
    await store.delete_nodes(["n1"])
    await store.save_nodes([])
    assert await store.version() == before + 2


# finding

TASKS = (
    task("bert-1", tags=("a", "b"), starred=True, created_at=1.0, priority=Priority.HIGH),
    task("bert_2", tags=("b",), created_at=2.0, state=TaskState.RUNNING, priority=Priority.LOW),
    task("Bert%3", "bob", created_at=3.0, spec=spec("Bert%3", "big", shared_in_group=True)),
    task(
        "x[y]?",
        "bob",
        created_at=4.0,
        state=TaskState.SUSPENDED,
        priority=Priority.AUTO,
        awaited=(2,),
    ),
    task(
        "done",
        "carol",
        created_at=5.0,
        state=TaskState.FINISHED,
        outcome=Outcome.FAILED,
        awaited=(2,),
    ),
    task("done", "carol", created_at=5.0, state=TaskState.FINISHED, outcome=Outcome.SUCCEEDED),
    task("ünï\\d", "dan", spec=replace(spec("ünï\\d"), task_type=TaskType.JUPYTER)),
    task(
        "shared", "eve", spec=spec("shared", shared_in_group=True), created_at=6.0, awaited=(1, 12)
    ),
)


async def create_tasks(store: Store) -> None:
    await store.save_user(User("bob", groups=("vision", "nlp")))
    await store.save_user(User("eve", groups=("audio",)))
    await store.save_user(User("alice", groups=("nlp",)))
    for each in TASKS:
        await store.create_task(each, [])


S, O = TaskState, Outcome  # noqa: E741


@pytest.mark.parametrize(
    ("terms", "ids"),
    [
        pytest.param({}, [1, 2, 3, 4, 5, 6, 7, 8], id="an empty filter matches all tasks"),
        pytest.param({"ids": {2, 5, 99}}, [2, 5], id="ids"),
        pytest.param({"states": {S.RUNNING, S.SUSPENDED}}, [2, 4], id="values are ORed"),
        pytest.param({"states": {S.FINISHED, S.RUNNING}}, [2, 5, 6], id="finished or running"),
        pytest.param({"outcomes": {O.FAILED}}, [5], id="outcome"),
        pytest.param({"users": {"bob"}, "states": {S.SUSPENDED}}, [4], id="terms are ANDed"),
        pytest.param({"groups": {"big"}}, [3], id="node group"),
        pytest.param({"names": ("bert-1",)}, [1], id="exact name"),
        pytest.param({"names": ("bert*",)}, [1, 2], id="names are case-sensitive"),
        pytest.param({"names": ("*%*", "*_2")}, [2, 3], id="percent and underscore are literal"),
        pytest.param({"names": ("x[y]?", "x[*")}, [4], id="brackets and marks are literal"),
        pytest.param({"names": ("?*", "[x]*")}, [], id="only * is a wildcard"),
        pytest.param({"names": ("*ï\\*",)}, [7], id="backslash is literal"),
        pytest.param({"names": ("*",)}, [1, 2, 3, 4, 5, 6, 7, 8], id="any name"),
        pytest.param({"tags": {"a", "zz"}}, [1], id="one of the tags"),
        pytest.param({"tags": {"b"}}, [1, 2], id="tag of several tasks"),
        pytest.param({"task_types": {TaskType.JUPYTER}}, [7], id="task type"),
        pytest.param(
            {"awaiting": {2}},
            [4],
            id="waits for task 2; not finished tasks, not tasks that wait for 12",
        ),
        pytest.param({"awaiting": {1, 2, 99}}, [4, 8], id="waits for one of the tasks"),
        pytest.param({"not_states": {S.FINISHED, S.RUNNING}}, [1, 3, 4, 7, 8], id="not states"),
        pytest.param({"not_tags": {"a"}, "users": {"alice"}}, [2], id="not tag"),
        pytest.param({"not_users": {"alice", "bob"}}, [5, 6, 7, 8], id="not users"),
        pytest.param({"not_names": ("done", "b*", "s*")}, [3, 4, 7], id="not names"),
        pytest.param({"starred": True}, [1], id="starred"),
        pytest.param({"starred": False, "users": {"alice"}}, [2], id="not starred"),
        pytest.param({"priority_min": 30}, [1], id="priority from"),
        pytest.param({"priority_max": 0}, [2, 4], id="priority to; AUTO is below all"),
        pytest.param({"created_after": 5.0}, [7, 8], id="after excludes the instant"),
        pytest.param({"created_before": 2.0}, [1], id="before excludes the instant"),
        pytest.param({"visible_to": "dan"}, [7], id="own tasks"),
        pytest.param(
            {"visible_to": "alice", "visible_groups": {"nlp"}},
            [1, 2, 3],
            id="shared by a member of the group",
        ),
        pytest.param(
            {"visible_to": "dan", "visible_groups": {"audio", "vision"}},
            [3, 7, 8],
            id="shared in several groups",
        ),
    ],
)
async def test_a_filter_selects_tasks(store: Store, terms: dict[str, Any], ids: list[int]) -> None:
    await create_tasks(store)
    values = {k: frozenset(v) if isinstance(v, set) else v for k, v in terms.items()}
    page = await store.find_tasks(TaskQuery(TaskFilter(**values), descending=False, count=True))
    assert [t.id for t in page.tasks] == ids
    assert page.total == len(ids)
    assert page.next_page_token == ""


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    ("order", "ids"),
    [
        ("id", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("create_time", [1, 2, 3, 4, 5, 6, 8, 7]),
        ("priority", [4, 2, 3, 5, 6, 7, 8, 1]),
        ("name", [3, 1, 2, 5, 6, 8, 4, 7]),
        ("state", [5, 6, 2, 4, 1, 3, 7, 8]),
    ],
)
async def test_pages_follow_the_order(
    store: Store, order: str, ids: list[int], descending: bool
) -> None:
    await create_tasks(store)
    query, found = TaskQuery(order_by=order, descending=descending, page_size=3), []
    for size in (3, 3, 2):
        page = await store.find_tasks(query)
        assert len(page.tasks) == size
        found += [t.id for t in page.tasks]
        query = replace(query, page_token=page.next_page_token)
    assert found == (ids[::-1] if descending else ids)
    assert query.page_token == ""


async def test_the_next_page_continues_when_tasks_are_added_and_changed(store: Store) -> None:
    await create_tasks(store)
    query = TaskQuery(order_by="create_time", page_size=3)
    first = await store.find_tasks(query)
    await store.create_task(task("new", created_at=1e9), [])
    await save(store, first.tasks[-1], starred=True)
    second = await store.find_tasks(replace(query, page_size=50, page_token=first.next_page_token))
    assert [t.id for t in (*first.tasks, *second.tasks)] == [7, 8, 6, 5, 4, 3, 2, 1]


async def test_a_token_of_another_query_is_refused(store: Store) -> None:
    await create_tasks(store)
    token = (await store.find_tasks(TaskQuery(page_size=1))).next_page_token
    starred = TaskFilter(starred=True)
    queries = [
        TaskQuery(starred, page_token=token),
        TaskQuery(order_by="name", page_token=token),
        TaskQuery(descending=False, page_token=token),
        *(TaskQuery(page_token=t) for t in ("x", "é", "bnVsbA", "W10", token[:-3], "W" + token)),
    ]
    for query in queries:
        with pytest.raises(Invalid) as error:
            await store.find_tasks(query)
        assert error.value.violations[0].field == "page_token"


@pytest.mark.parametrize(
    ("order", "value", "task_id"),
    [
        pytest.param("id", 2**63, 1, id="a number beyond the database's"),
        pytest.param("create_time", 10**400, 1, id="a number beyond a float's"),
        pytest.param("create_time", float("nan"), 1, id="not a number"),
        pytest.param("id", 1, -(2**63) - 1, id="a task beyond the database's numbers"),
        pytest.param("name", "a\0b", 1, id="a NUL byte"),
        pytest.param("name", "\ud800", 1, id="half a character"),
    ],
)
async def test_a_forged_token_is_refused(
    store: Store, order: str, value: object, task_id: int
) -> None:
    await create_tasks(store)
    query = TaskQuery(order_by=order, page_size=1)
    token = (await store.find_tasks(query)).next_page_token
    digest = json.loads(base64.urlsafe_b64decode(token + "=="))[0]
    text = json.dumps([digest, value, task_id])
    forged = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    with pytest.raises(Invalid, match="not one that this server gave"):
        await store.find_tasks(replace(query, page_token=forged))


async def test_a_deeply_nested_token_is_refused(store: Store) -> None:
    token = base64.urlsafe_b64encode(b"[" * 100_000).decode()
    with pytest.raises(Invalid, match="not one that this server gave"):
        await store.find_tasks(TaskQuery(page_token=token))


async def test_an_invalid_order_and_size_are_reported_together(store: Store) -> None:
    with pytest.raises(Invalid) as error:
        await store.find_tasks(TaskQuery(order_by="nmae", page_size=0))
    assert [v.field for v in error.value.violations] == ["order_by", "page_size"]
    assert set(ORDERS) <= set(error.value.violations[0].message.replace(",", "").split())


async def test_pages_contain_runs(store: Store) -> None:
    waiting = await store.create_task(task("a"), [])
    placed = await save(store, await store.create_task(task("b"), []), run=run())
    assert (await store.find_tasks(TaskQuery())).tasks == (placed, waiting)


async def test_unfinished_tasks_are_ordered_by_id(store: Store) -> None:
    await create_tasks(store)
    assert [t.id for t in await store.unfinished_tasks()] == [1, 2, 3, 4, 7, 8]


# nodes, users, records, tokens


async def test_nodes_and_groups_are_stored(store: Store) -> None:
    node = Node(
        "n1",
        "g",
        "z",
        NodeState.NOT_READY,
        True,
        8,
        True,
        64,
        2**40,
        ("leaf", "spine"),
        "why",
        1.5,
        (("example.org/rack", "r7"), ("old", "")),
    )
    await store.save_nodes([Node("n2"), Node("n1")])
    await store.save_nodes([node])
    assert await store.nodes() == [node, Node("n2")]
    await store.delete_nodes(["n2", "n3"])
    assert await store.nodes() == [node]
    await store.save_group(Group("b"))
    await store.save_group(Group("a"))
    await store.save_group(Group("a", packed=True))
    assert await store.groups() == [Group("a", True), Group("b")]
    await store.save_group(Group("b", False, '{"staying": 2.0}'))
    assert await store.groups() == [Group("a", True), Group("b", False, '{"staying": 2.0}')]


async def test_users_and_quotas_are_stored(store: Store) -> None:
    alice = User("alice", Role.ADMIN, ("g1", "g0"), False, ("assign_nodes",), 1000, 5.5)
    await store.save_user(User("bob", groups=("g1",)))
    await store.save_user(User("alice", groups=("old",)))
    await store.save_user(alice)
    assert await store.users() == [alice, User("bob", groups=("g1",))]
    quota = Quota("alice", False, "g", Priority.HIGH, 4, 9.5)
    of_group = Quota("alice", True, "g", Priority.AUTO, 2)
    await store.save_quota(replace(quota, nodes=1))
    await store.save_quota(quota)
    await store.save_quota(of_group)
    assert await store.quotas() == [quota, of_group]
    assert await store.delete_quota("alice", False, "g", Priority.HIGH)
    assert not await store.delete_quota("alice", False, "g", Priority.HIGH)
    assert await store.quotas() == [of_group]


RECORDS = [
    (
        Share("speech", "g", 1, 2, 3),
        Share("speech", "g", 0, 0, None),
        Share("vision", "g", 4, 0, None),
    ),
    (
        Dataset("a", "1", "/d", "ada", "vision", Visibility.GROUP, 1 << 50, "gut", 1.5),
        Dataset("a", "1", "/e", "bob"),
        Dataset("b", "1", "/d", "ada"),
    ),
    (
        Environment(
            "ada",
            "torch",
            EnvironmentState.BROKEN,
            "weg",
            Visibility.GROUP,
            "vision",
            "base[system]",
            "3.11.9",
            "0" * 64,
            "0" * 24,
            3,
            1 << 50,
            "für alle",
            "torch2",
            1.5,
            2.5,
        ),
        Environment("ada", "torch"),
        Environment("bob", "torch"),
    ),
    (
        Message(3, "vision", True, "Grüße", "olga", 1.5, 2.5),
        Message(3, "", False, "", "root", 1.5),
        Message(11, "ada", False, "x", "olga", 1.5),
    ),
    (
        Artifact("vision", "a", "1", "ada", "model", "/x", "gut", 1.5, 2.5),
        Artifact("vision", "a", "1", "bob"),
        Artifact("~ada", "a", "1", "ada"),
    ),
    (
        TaskArtifact(7, Direction.INPUT, "vision", "a", "1"),
        TaskArtifact(7, Direction.INPUT, "~ada", "b", "2"),
        TaskArtifact(7, Direction.OUTPUT, "vision", "a", "1"),
    ),
    (Port(1, "ada", "t", "ssh", 9.5), Port(1, "bob", "u", "x"), Port(30_000, "ada", "t", "ssh")),
    (Grant("ada", False, "ports:4", 9.5), Grant("ada", False, "ports:4"), Grant("ada", True, "x")),
    (
        Image("torch", "r.example/torch:2", ("vision", "speech"), True, "für alle"),
        Image("torch", "r.example/torch:3"),
        Image("zoo", "r.example/zoo"),
    ),
    (
        Registry("r.example", "robot$a", "hunter2", True, "login"),
        Registry("r.example"),
        Registry("s.example"),
    ),
    (
        MountRow(
            ("public", "ada"),
            "/data",
            "lustre",
            3,
            MountAction.REMOVE,
            MountKind.CSI,
            HostPathType.SOCKET,
            {"b": "1", "a": "ü"},
            ("user.name == 'ada'",),
            False,
            2,
        ),
        MountRow((), "/other", id=3),
        MountRow(("ada",), "/data", id=11),
    ),
    (
        Webhook("ada", "a", "https://h/x", ("ended", "failed"), Format.SLACK, "ü", "whsec_A", 1.5),
        Webhook("ada", "a", "https://h/y", (), Format.JSON, "", "", 0.0),
        Webhook("bob", "a", "https://h/x", (), Format.JSON, "", "", 0.0),
    ),
    (
        Notice("ada", "a", 7, 1, WebhookEvent.ENDED, 1.5, {"reason": "Grüße"}),
        Notice("ada", "a", 7, 1, WebhookEvent.ENDED, 2.5, {}),
        Notice("ada", "a", 7, 1, WebhookEvent.STARTED, 1.5, {}),
    ),
]


@pytest.mark.parametrize(
    ("first", "replacement", "other"),
    RECORDS,
    ids=[type(records[0]).__name__ for records in RECORDS],
)
async def test_records_are_stored(store: Store, first: Any, replacement: Any, other: Any) -> None:
    """`replacement` has the key of `first`; the key of `other` is larger."""
    kind = type(first)
    assert await store.records(kind) == []
    assert await store.add_record(other)
    assert await store.add_record(first)
    assert not await store.add_record(replacement)
    assert await store.records(kind) == [first, other]
    await store.save_record(replacement)
    assert await store.records(kind) == [replacement, other]
    assert await store.delete_record(first)
    assert not await store.delete_record(replacement)
    assert await store.records(kind) == [other]


async def test_records_are_saved_only_if_the_task_is_saved(store: Store) -> None:
    created = await store.create_task(task(), ())
    first, second = (Notice("ada", "a", created.id, n, WebhookEvent.ENDED, 1.5, {}) for n in (1, 2))
    assert await store.save_task(next_revision(created, starred=True), (), [first])
    assert await store.save_task(next_revision(created, held=True), (), [second]) is None
    assert await store.records(Notice) == [first]


async def test_records_are_found_by_values_of_fields(store: Store) -> None:
    first = TaskArtifact(1, Direction.INPUT, "~ada", "ü", "1")
    second = TaskArtifact(2, Direction.INPUT, "~ada", "ü", "1")
    third = TaskArtifact(2, Direction.OUTPUT, "~ada", "ü", "2")
    share = Share("vision", "g", 1, 2, None)
    for record in (third, first, second, share, replace(share, user_group="nlp", limit=3)):
        await store.save_record(record)
    assert await store.records(TaskArtifact, task_id=2) == [second, third]
    assert await store.records(TaskArtifact, direction=Direction.INPUT) == [first, second]
    assert await store.records(TaskArtifact, task_id=2, version="1") == [second]
    assert await store.records(TaskArtifact, name="Ü") == []
    assert await store.records(Share, limit=None) == [share]
    assert await store.delete_records(TaskArtifact, name="ü", version="1") == 2
    assert await store.delete_records(TaskArtifact, name="ü", version="1") == 0
    assert await store.records(TaskArtifact) == [third]


def test_every_kind_of_record_is_tested() -> None:
    assert {type(records[0]) for records in RECORDS} == set(TABLES)


async def test_the_end_of_a_membership_ends_the_visibility(store: Store) -> None:
    await create_tasks(store)
    await store.save_user(User("bob", groups=("vision",)))
    visible = TaskFilter(visible_to="alice", visible_groups=frozenset({"nlp"}))
    assert [t.id for t in (await store.find_tasks(TaskQuery(visible))).tasks] == [2, 1]


async def test_tokens_are_stored(store: Store) -> None:
    first = await store.create_token(Token(0, "alice", TokenScope.READ, "aa", "laptop", 1.0, 2.0))
    second = await store.create_token(Token(0, "bob", TokenScope.ALL, "bb"))
    assert 0 < first.id < second.id
    revoked = replace(first, revoked=True)
    await store.save_token(revoked)
    assert await store.tokens() == [revoked, second]
    assert await store.delete_token(second.id)
    assert not await store.delete_token(second.id)
    assert await store.tokens() == [revoked]
    assert (await store.create_token(Token(0, "bob", TokenScope.ALL, "cc"))).id > second.id
    with pytest.raises(Conflict):
        await store.create_token(Token(0, "eve", TokenScope.ALL, "aa"))


async def test_a_refused_write_does_not_fail_the_rest_of_the_batch(store: Store) -> None:
    await store.create_token(Token(0, "alice", TokenScope.ALL, "aa"))
    results = await asyncio.gather(
        store.create_task(task("a"), []),
        store.create_token(Token(0, "bob", TokenScope.ALL, "aa")),
        store.create_task(task("b"), []),
        return_exceptions=True,
    )
    assert [type(r) for r in results] == [Task, Conflict, Task]
    assert len(await store.unfinished_tasks()) == 2
