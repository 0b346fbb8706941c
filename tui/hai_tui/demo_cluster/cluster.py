"""A made-up cluster in memory, always the same, for `hai tui --demo`, for pictures of the manual, and for tests.

It is the fake server of the client, so every page works with it. Nothing leaves this machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from hai.client.fake.server import FakeClient
from hai.client.fake.world import copy
from hai.client.tasks.tasks import Tasks
from hai.v1.task_pb2 import (
    RANK_STATE_FAILED,
    RANK_STATE_STOPPED,
    RUN_STATE_SUSPENDING,
    TASK_OUTCOME_FAILED,
    TASK_OUTCOME_STOPPED,
    TASK_OUTCOME_SUCCEEDED,
    Goodput,
)
from hai.v1.task_service_pb2 import (
    ExplainTaskResponse,
    Flip,
    NodeNumbers,
    QuotaUse,
    TaskAhead,
)
from hai.v1.task_spec_pb2 import (
    OptionsSpec,
    ProgramSpec,
    ResourceSpec,
    ServiceSpec,
    TaskSpec,
)
from hai.v1.user_pb2 import Quota
from hai_tui.demo_cluster.records import PEOPLE, RUNS_IN, furnish
from hai_tui.demo_cluster.storage import stock
from hai_tui.demo_cluster.usage import measure, measure_now

_HOUR = 3600.0

# Name, user, nodes, priority, tags. Their ids start with 1.
_TASKS: tuple[tuple[str, str, int, int, str], ...] = (
    ("tokenize-corpus", "alice", 1, 10, "data"),
    ("bert-base-pretrain", "alice", 4, 30, "bert,nlp"),
    ("resnet50-baseline", "bob", 2, 10, "vision"),
    ("gpt-125m-sweep-lr3e4", "carol", 2, 10, "sweep,nlp"),
    ("gpt-125m-sweep-lr1e3", "carol", 2, 10, "sweep,nlp"),
    ("eval-nightly", "dave", 1, 0, ""),
    ("diffusion-256", "bob", 4, 20, "vision"),
    ("蛋白质折叠-第二阶段", "erin", 4, 30, "bio"),
    ("gpt-1.3b-pretrain", "alice", 8, 30, "nlp"),
    ("ablation-no-dropout", "carol", 2, 10, "sweep"),
    ("segment-anything-ft", "bob", 2, 10, "vision"),
    ("notebook-erin", "erin", 1, 10, ""),
)
_QUOTAS = (
    *(("alice", priority, nodes) for priority, nodes in ((-1, 24), (30, 16), (20, 8), (10, 8))),
    ("bob", 20, 4),
    ("bob", 10, 2),
)
_SERVICES = {
    "bert-base-pretrain": [
        ServiceSpec(name="tensorboard", type="http", port=6006, startup_script="tensorboard …"),
        ServiceSpec(name="uploader", type="local", startup_script="python upload.py"),
    ]
}
"""The services of tasks."""
TRACE = """loading shard 12 of 64
step 1840  loss 2.213  lr 3.0e-04
Traceback (most recent call last):
  File "train.py", line 214, in <module>
    loss = model(batch).loss
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB
"""


class _ExplainingTasks(Tasks):
    """The fake server explains little; this class answers for task 9 as a real server does."""

    async def explain(self, id: int) -> ExplainTaskResponse:
        answer = await super().explain(id)
        if not answer.waiting.reason:
            return answer
        answer.constraints.extend(_CONSTRAINTS)
        answer.flips.extend(Flip(message=message) for message in _FLIPS)
        answer.ahead.append(
            TaskAhead(
                id=8, name="蛋白质折叠-第二阶段", user="erin", node_count=4, rule="runs already"
            )
        )
        answer.nodes.CopyFrom(
            NodeNumbers(total=16, usable=15, free=2, leaving=4, protected=3, firm=6, cordoned=1)
        )
        answer.quotas.append(QuotaUse(priority=30, allowed=16, held=4, after=12))
        answer.history.append("suspended once, for task 2 bert-base-pretrain (higher priority)")
        return answer


_CONSTRAINTS = (
    "group train has 16 nodes: 15 usable, of which 2 are free and 4 are being left; 1 cordoned",
    "3 nodes are held by runs that it outranks, but that are protected until 14:50",
)
_FLIPS = (
    "with 2 nodes less (6 instead of 8) it would start at once",
    "when the protection of task 7 ends at 14:50, it is promised its nodes",
    "uncordon gpu-15 and it would be promised its nodes",
)


def training(name: str, nodes: int, priority: int, tags: str = "") -> TaskSpec:
    """Return a task as the users of this cluster submit it.

    `tags` are separated by commas. A task whose name begins with `notebook` is a dev container.
    """
    notebook = name.startswith("notebook")
    return TaskSpec(
        version=2,
        name=name,
        priority=priority,
        spec=ProgramSpec(workspace="/ws/train", entrypoint="train.py", parameters=["--fp16"]),
        resource=ResourceSpec(group="train", node_count=nodes),
        options=OptionsSpec(
            tags=[tag for tag in tags.split(",") if tag], py_venv=RUNS_IN.get(name, "")
        ),
        task_type="jupyter" if notebook else "",
        services=[ServiceSpec(name="jupyter")] if notebook else _SERVICES.get(name, ()),
    )


def loss_line(step: int, rank: int) -> str:
    """Return a line as the programs of these tasks print it."""
    loss = 6.9 / (1 + step / 9) + rank / 100
    return f"step {step * 10:4}  loss {loss:.3f}  lr 3.0e-04"


class DemoClient(FakeClient):
    """A fake client with a cluster of its own."""

    def __init__(self) -> None:
        super().__init__(user="alice")
        self.tasks = _ExplainingTasks(self._transport)

    def acting(self, user: str) -> DemoClient:
        """Make this user the caller from now on."""
        self.world.user = user
        return self


async def demo() -> DemoClient:
    """Return a client for a cluster of sixteen GPU nodes in the middle of a day."""
    client = DemoClient()
    client.world.now = 1_800_028_800.0
    for number in range(16):
        client.add_node(f"gpu-{number:02}", "train")
    for number in range(2):
        client.add_node(f"cpu-{number:02}", "cpu", gpus=0)
    for node in list(client.world.nodes.values())[:16]:
        node.zone = "a" if node.name < "gpu-08" else "b"
    for node in client.world.nodes.values():
        node.cpus, node.memory_bytes = (64, 512 << 30) if node.gpus else (128, 256 << 30)
    await client.nodes.cordon("gpu-15", "fan replaced")
    await client.nodes.label("gpu-08", {"fabric": "ib", "rack": "r3"})
    await _add_users(client)
    for name, user, nodes, priority, tags in _TASKS:
        await _submit(client, name, user, nodes, priority, tags)
        client.world.now += 240.0
    await _simulate_day(client)
    await furnish(client.acting, client.world.now)
    stock(client.acting("alice").world)
    measure(client)
    for task, shares in ((7, (0.82, 0.79, 0.31, 0.8)), (8, (0.04, 0.05, 0.03, 0.04))):
        measure_now(client, task, shares)
    return client


async def _add_users(client: DemoClient) -> None:
    for user in PEOPLE:
        stored = client.world.users[user.name] = copy(user)
        stored.create_time.CopyFrom(client.world.time())
    for user_name, priority, nodes in _QUOTAS:
        quota = Quota(subject=user_name, group="train", priority=priority, nodes=nodes)
        await client.users.set_quota(quota)


async def _submit(
    client: DemoClient, name: str, user: str, nodes: int, priority: int, tags: str
) -> None:
    await client.acting(user).tasks.create(training(name, nodes, priority, tags))
    client.acting("alice")


async def _simulate_day(client: DemoClient) -> None:
    """Let tasks start, succeed, fail, be suspended and wait."""
    nodes = [f"gpu-{number:02}" for number in range(16)]
    _start(client, 1, nodes[15:16])
    _start(client, 2, nodes[0:4])
    _start(client, 3, nodes[4:6])
    _start(client, 4, nodes[6:8])
    client.world.now += 0.4 * _HOUR
    client.finish(1, TASK_OUTCOME_SUCCEEDED, "the program ended well")
    _fail(client, 4)
    _start(client, 5, nodes[6:8])
    _start(client, 7, nodes[8:12])
    _start(client, 10, nodes[12:14])
    client.suspended(10, "task 8 has a higher priority")
    _start(client, 8, nodes[12:15])
    client.world.now += 0.6 * _HOUR
    client.finish(3, TASK_OUTCOME_STOPPED, "stopped by bob")
    _suspend_for(client, 5)
    await client.tasks.suspend(6, hold=True)
    await client.tasks.star(2)
    client.world.task(2).goodput.CopyFrom(_GOODPUT)
    client.world.task(2).goodput.checkpoint_time.CopyFrom(client.world.time())
    _set_wait_reasons(client)
    _print_log(client, 2)
    client.world.now += 90.0


def _start(client: DemoClient, id: int, nodes: Sequence[str]) -> None:
    client.start(id, nodes)
    run = client.world.runs[id][-1]
    for rank in run.ranks:
        rank.start_time.CopyFrom(client.world.time())
    client.world.tasks[id].run.CopyFrom(run)


def _fail(client: DemoClient, id: int) -> None:
    ranks = client.world.runs[id][-1].ranks
    for rank, code, meaning in zip(ranks, (143, 1), ("ended by SIGTERM", ""), strict=True):
        rank.exit_code, rank.exit_meaning = code, meaning
        rank.end_time.CopyFrom(client.world.time())
    ranks[1].last_lines = TRACE
    client.finish(id, TASK_OUTCOME_FAILED, "rank 1 on gpu-07 failed: exit code 1")
    ended = client.world.runs[id][-1]
    ended.stop_code = 128
    ended.ranks[0].state, ended.ranks[1].state = RANK_STATE_STOPPED, RANK_STATE_FAILED
    client.world.tasks[id].run.CopyFrom(ended)


def _suspend_for(client: DemoClient, id: int) -> None:
    run = client.world.runs[id][-1]
    run.state = RUN_STATE_SUSPENDING
    run.reason = "task 9 has a higher priority"
    client.world.changed(client.world.task(id), "SuspendAsked", run.reason)


def _set_wait_reasons(client: DemoClient) -> None:
    sentence = {
        9: "Needs 8 nodes. Group train has 15 usable nodes; 2 are free, 4 are being released, "
        "tasks at HIGH or above hold 9.",
        10: "Needs 2 nodes. Group train has 15 usable nodes; 4 are being released, tasks at NORMAL or above hold 11.",
        11: "Needs 4 nodes. User bob may hold 2 at NORMAL in group train and holds 0.",
        12: "Needs 1 node. Group train has 15 usable nodes; 4 are being released, tasks at NORMAL or above hold 11.",
    }
    reasons = {11: "OUT_OF_QUOTA"}
    for place, (id, message) in enumerate(sentence.items(), start=1):
        task = client.world.task(id)
        waiting = task.waiting
        waiting.reason, waiting.message = reasons.get(id, "NOT_ENOUGH_NODES"), message
        waiting.queue_place, waiting.effective_priority = place, task.priority
        client.world.changed(task, "TaskQueued")


def _print_log(client: DemoClient, id: int) -> None:
    for step in range(1, 41):
        client.world.now += 0.5
        for rank in range(4):
            client.print(id, loss_line(step, rank), rank=rank)


_GOODPUT = Goodput(
    share=0.94,
    held_seconds=4 * 6200,
    overhead_seconds=64,
    lost_seconds=420,
    interruptions=1,
    checkpoints=11,
    checkpoint_seconds=3.2,
    interval_seconds=540,
    advised_interval_seconds=480,
    between_interruptions_seconds=9400,
    basis="task",
)
