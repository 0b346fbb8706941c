"""Replays jobs through the production scheduler on an empty virtual cluster (virtual_cluster.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from hai_backend.domain.node import Group, Node
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler import Policy, SchedulerCache
from hai_backend.scheduler.policy.rules import Rules
from hai_backend.sim.replay.job import Job, JobRecord, Outcome, Progress
from hai_backend.sim.replay.virtual_cluster import SimulatedTask, VirtualCluster

_GROUP = "default"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Equal nodes. In a `packed` cluster, jobs smaller than a node share nodes."""

    nodes: int
    gpus_per_node: int = 8
    packed: bool = False
    suspend_seconds: float = 5.0
    restart_seconds: float = 60.0

    def members(self) -> tuple[Node, ...]:
        """Return the nodes for the scheduler."""
        width = len(str(self.nodes))
        names = (f"n{i:0{width}}" for i in range(1, self.nodes + 1))
        return tuple(Node(name, _GROUP, gpus=self.gpus_per_node) for name in names)

    def shape(self, job: Job) -> tuple[int, int]:
        """Return the number of ranks of a job, and the GPUs of each rank, 0 for whole nodes.

        All ranks are equal, and there are as few as possible.
        """
        if not self.packed or not job.gpus:
            return job.nodes, 0
        ranks = ceil(job.gpus / self.gpus_per_node)
        while job.gpus % ranks:
            ranks += 1
        return ranks, job.gpus // ranks

    def weight(self, job: Job) -> float:
        """Return the number of nodes that a job uses. Parts of nodes count as parts."""
        ranks, gpus = self.shape(job)
        return ranks * gpus / self.gpus_per_node if gpus else ranks


def replay(
    jobs: Sequence[Job],
    cluster: Cluster,
    policy: Policy,
    *,
    label: str = "",
    progress: Progress = lambda done, total, now: None,
) -> Outcome:
    """Run all jobs to their end. Raises ValueError for a job that can never run on this cluster."""
    world = open_cluster(jobs, cluster, policy)
    while len(world.ended) < len(jobs):
        if not world.advance():
            raise RuntimeError(f"{len(jobs) - len(world.ended)} jobs wait for ever")
        world.decide()
        progress(len(world.ended), len(jobs), world.now)
    known = {job.id: job for job in jobs}
    records = tuple(_record(known[simulated.task.id], simulated) for simulated in world.ended)
    return Outcome(label, cluster.nodes, records, tuple(world.usage), tuple(world.pass_seconds))


def open_cluster(jobs: Sequence[Job], cluster: Cluster, policy: Policy) -> VirtualCluster:
    """Return an empty cluster to which these jobs will be submitted. Raises ValueError as `replay` does."""
    cache = SchedulerCache(policy)
    cache.update_rules(Rules({_GROUP: Group(_GROUP, cluster.packed)}))
    cache.update_nodes(cluster.members())
    world = VirtualCluster(cache, cluster.suspend_seconds, cluster.restart_seconds)
    for job in jobs:
        world.schedule_submission(_simulate_task(job, cluster), job.submit)
    return world


def _record(job: Job, simulated: SimulatedTask) -> JobRecord:
    return JobRecord(
        job,
        simulated.first_start,
        simulated.finished,
        simulated.suspensions,
        simulated.node_seconds,
    )


def _simulate_task(job: Job, cluster: Cluster) -> SimulatedTask:
    """Return the simulated task of a job."""
    ranks, gpus = cluster.shape(job)
    if ranks > cluster.nodes:
        raise ValueError(f"job {job.id} needs {ranks} nodes; the cluster has {cluster.nodes}")
    task = SchedTask(
        id=job.id,
        user=job.user,
        group=_GROUP,
        node_count=ranks,
        priority=job.priority,
        created_at=job.submit,
        gpu=gpus,
        name=job.name,
        yields=True,
    )
    return SimulatedTask(task, cluster.weight(job), left=job.duration)
