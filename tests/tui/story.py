"""A fixed sequence of events in a cluster, on a real server in this process whose clock moves only on command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from hai.client.client import Client
from hai.client.profile import Profile
from hai.v1.task_pb2 import Task
from hai.v1.user_pb2 import Quota, User
from hai_backend.domain.node import Node
from hai_backend.testing import ManualClock
from hai_tui.demo_cluster.cluster import TRACE, loss_line, training
from hai_tui.demo_cluster.records import ALLOWED, PEOPLE, TREES, VENVS, Tree, Venv, furnish
from hai_tui.feed.task_row import cached_status
from tests.support.environments import as_parent, make_environment
from tests.support.scripted_agents import ScriptedLauncher
from tests.support.servers import running_server
from tests.support.workspaces import Pusher

_GIB = 1 << 30
_NODES = [
    *(Node(f"gpu-{n:02}", "train", "a" if n < 8 else "b", gpus=8, cpus=64, memory_bytes=512 * _GIB)
      for n in range(16)),
    *(Node(f"cpu-{n:02}", "cpu", cpus=128, memory_bytes=256 * _GIB) for n in range(2)),
]  # fmt: skip


@dataclass
class Story:
    """Clients, clock and launcher of the cluster, and the steps of the day."""

    admin: Client
    people: dict[str, Client]
    clock: ManualClock
    launcher: ScriptedLauncher

    async def submit(
        self, user: str, name: str, nodes: int, priority: int, tags: str = "", *, until: str
    ) -> int:
        """Submit a task, wait until it has the status `until`, and advance the clock by four minutes."""
        task = await self.people[user].tasks.create(training(name, nodes, priority, tags))
        await self.wait_for_status(task.id, until)
        self.clock.advance(240)
        return task.id

    async def wait_for_status(self, id: int, status: str) -> None:
        """Wait until a task has a status. For RUNNING, wait also until all its programs have started, because
        the clock advances afterwards.
        """
        await self.until(id, lambda task: cached_status(task) == status and _is_whole(task))

    async def until(self, id: int, true: Callable[[Task], bool]) -> None:
        """Wait until a condition holds for a task."""
        async with asyncio.timeout(30), aclosing(self.admin.tasks.watch()) as answers:
            while not true(await self.admin.tasks.get(id)):
                await anext(answers)

    async def queued(self, count: int) -> None:
        """Wait until this many tasks have a reason for waiting."""
        async with asyncio.timeout(30):
            while await self._told() != count:  # noqa: ASYNC110 - watches do not report it
                await asyncio.sleep(0.05)

    async def _told(self) -> int:
        return sum(bool(task.waiting.reason) for task in await self.admin.tasks.queue())

    def print(self, id: int, ranks: int) -> None:
        """Let the programs of a task print 40 lines with their loss."""
        for step in range(1, 41):
            self.clock.advance(0.5)
            for rank in range(ranks):
                line = loss_line(step, rank)
                self.launcher.agents[id, rank].print([line], self.clock.now())


def _is_whole(task: Task) -> bool:
    """Return whether all programs of a running task have started."""
    running = cached_status(task) == "RUNNING"
    return not running or all(rank.HasField("start_time") for rank in task.run.ranks)


@asynccontextmanager
async def the_story(home: Path) -> AsyncIterator[tuple[Profile, ManualClock]]:
    """Alice's way to the server, in the afternoon."""
    clock, launcher = ManualClock(1_800_028_800.0), ScriptedLauncher(_NODES)
    async with running_server(home, launcher=launcher, clock=clock, webhooks=ALLOWED) as server:
        launcher.address = lambda: server.app.address
        async with Client(server.profile) as admin:
            tokens = {user.name: await _person(admin, user) for user in PEOPLE}
            profiles = {n: replace(server.profile, name="lab", token=t) for n, t in tokens.items()}
            people = {name: Client(profile) for name, profile in profiles.items()}
            try:
                for venv in VENVS:
                    _install(server.app.settings.environment_root, venv)
                await _day(Story(admin, people, clock, launcher))
                await _belongings(people, clock.now())
                yield profiles["alice"], clock
            finally:
                for client in people.values():
                    await client.close()


async def _person(admin: Client, user: User) -> str:
    await admin.users.create(user)
    for priority, nodes in ((-1, 24), (30, 16), (20, 8), (10, 8), (0, 8)):
        quota = Quota(subject=user.name, group="train", priority=priority, nodes=nodes)
        await admin.users.set_quota(quota)
    return (await admin.users.create_token(user=user.name)).secret


async def _day(day: Story) -> None:
    """Submit tasks 1 to 12, which succeed, fail, run, wait, and are stopped, held or displaced."""
    await day.admin.nodes.cordon("gpu-15", "fan replaced")
    await day.admin.nodes.label("gpu-08", {"fabric": "ib", "rack": "r3"})
    await day.submit("alice", "tokenize-corpus", 1, 10, "data", until="RUNNING")
    day.launcher.agents[1, 0].exit(0)
    await day.wait_for_status(1, "SUCCEEDED")
    await day.submit("alice", "bert-base-pretrain", 4, 30, "bert,nlp", until="RUNNING")
    await day.submit("bob", "resnet50-baseline", 2, 10, "vision", until="RUNNING")
    await day.submit("carol", "gpt-125m-sweep-lr3e4", 2, 10, "sweep,nlp", until="RUNNING")
    day.launcher.agents[4, 1].exit(1, TRACE)
    await day.until(4, lambda task: task.run.ranks[1].exit_code == 1)
    day.launcher.agents[4, 0].exit(143)  # the agent ends a program whose sibling has failed
    await day.wait_for_status(4, "FAILED")
    await day.submit("carol", "gpt-125m-sweep-lr1e3", 2, 10, "sweep,nlp", until="RUNNING")
    held = await day.submit("dave", "eval-nightly", 1, 0, until="RUNNING")
    await day.people["dave"].tasks.suspend(held, hold=True)
    await day.wait_for_status(held, "HELD")
    await day.people["bob"].tasks.stop(3)
    await day.wait_for_status(3, "STOPPED")
    await day.submit("bob", "diffusion-256", 4, 20, "vision", until="RUNNING")
    await day.submit("erin", "蛋白质折叠-第二阶段", 4, 30, "bio", until="RUNNING")
    day.clock.advance(1800)
    await day.submit("alice", "gpt-1.3b-pretrain", 7, 30, "nlp", until="RUNNING")
    for id in (5, 7):
        await day.wait_for_status(id, "SUSPENDED")
    await day.submit("carol", "ablation-no-dropout", 2, 10, "sweep", until="WAITING_INIT")
    await day.submit("bob", "segment-anything-ft", 2, 10, "vision", until="WAITING_INIT")
    await day.submit("erin", "notebook-erin", 1, 10, until="WAITING_INIT")
    await day.queued(6)
    await day.people["alice"].tasks.star(2)
    day.print(2, 4)
    day.clock.advance(90)


async def _belongings(people: dict[str, Client], now: float) -> None:
    await furnish(people.__getitem__, now)
    for tree in TREES:
        await _push(people["alice"], tree)


def _install(root: Path, venv: Venv) -> None:
    """Write an environment to the storage in the form that haienv uses."""
    name, _, owner = venv.parent.rstrip("]").partition("[")
    gone = {"name": name, "owner": owner, "layer": "5" * 24, "lock_hash": "5" * 64}
    parents = [gone if venv.broken else as_parent(root, owner, name)] if venv.parent else []
    label = {"visibility": venv.visibility, "group": venv.group}
    make_environment(
        root,
        venv.owner,
        venv.name,
        lock=venv.lock,
        parents=parents,
        facts={"python": venv.python, "packages": venv.packages, "size_bytes": venv.size_bytes},
        description=venv.description,
        deprecated=venv.deprecated,
        **label,
    )


async def _push(client: Client, tree: Tree) -> None:
    """Push a workspace with all its files, then one changed file per further revision."""
    pusher = await Pusher(client, tree.name).create()
    for revision in range(tree.revisions):
        files = range(1 if revision else tree.files)
        await pusher.push({f"{n}.py": _content(n, revision, tree.bytes_each) for n in files})
    if tree.holder:
        await client.workspaces.lease(tree.name, tree.holder, force=True)
    else:
        await client.workspaces.release(tree.name, pusher.token)


def _content(file: int, revision: int, size: int) -> bytes:
    return f"{file} {revision}".encode().ljust(size)
