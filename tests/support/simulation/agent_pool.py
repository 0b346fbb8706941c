"""All simulated agents, and the checks that concern several of them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random

from hai_backend.launch.base import RankKey
from hai_backend.launch.manifests.names import key_of
from hai_backend.testing.kube import FakeCluster, InstantKubelet
from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.kubelet.pod_state import LocalPod
from tests.support.simulation.agent import AgentComponents, SimulatedAgent
from tests.support.simulation.network import Network
from tests.support.virtual_time import run_outside

_AGAIN_SECONDS = 1.0


class AgentKubelet(InstantKubelet):
    """Calls back when a pod starts, begins to stop, and has ended. On a frozen machine, no pod ends."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.began: Callable[[LocalPod], None] = lambda local: None
        self.stopping: Callable[[LocalPod], None] = lambda local: None
        self.gone: Callable[[LocalPod], None] = lambda local: None
        self.crashed: Callable[[str], None] = lambda node: None
        self.frozen_nodes: set[str] = set()  # machines that are frozen

    def stop(self, local: LocalPod) -> None:
        self.stopping(local)
        super().stop(local)

    def end_at_deadline(self, local: LocalPod) -> None:
        super().end_at_deadline(local)
        self.gone(local)

    def crash(self, node: str) -> None:
        super().crash(node)
        self.crashed(node)
        for local in self.pods_on(node):
            self.gone(local)

    def remove(self, local: LocalPod) -> None:
        if self._waits(local, lambda: self.remove(local)):
            return
        super().remove(local)
        self.gone(local)

    def _run(self, local: LocalPod) -> None:
        super()._run(local)
        self.began(local)

    def _end_stopped(self, local: LocalPod, code: int) -> None:
        if self._waits(local, lambda: self._end_stopped(local, code)):
            return
        super()._end_stopped(local, code)
        self.gone(local)

    def _waits(self, local: LocalPod, action: Callable[[], None]) -> bool:
        """Return whether the node is frozen. If it is, call `action` in a second."""
        if local.node not in self.frozen_nodes:
            return False
        self.api.timers.call_later(_AGAIN_SECONDS, action)
        return True


class AgentPool:
    """All agents, the progress of their tasks, and the states that servers have acknowledged."""

    def __init__(
        self,
        cluster: FakeCluster,
        network: Network,
        random: Random,
        log: Callable[[str], None],
        directory: Path,
        parts: AgentComponents,
        longest_work: float,
    ) -> None:
        assert isinstance(cluster.kubelet, AgentKubelet)
        self.kubelet = cluster.kubelet
        self.kubelet.began = self._began
        self.kubelet.stopping = lambda local: self._of(local, SimulatedAgent.stop)
        self.kubelet.gone = lambda local: self._of(local, SimulatedAgent.vanish)
        self.network = network
        self.random = random
        self.log = log
        self.parts = parts
        self.work: dict[int, float] = defaultdict(lambda: random.uniform(5.0, longest_work))
        self.agents: list[SimulatedAgent] = []
        self.states: dict[int, int] = defaultdict(int)  # whole-life states that servers have stored
        self.failures: list[BaseException] = []
        self.started: Callable[[RankKey], None] = lambda key: None
        self._directory = directory
        self._by_pod: dict[str, SimulatedAgent] = {}

    @property
    def active(self) -> list[SimulatedAgent]:
        return list(self._by_pod.values())

    def directory(self, local: LocalPod) -> Path:
        """Return a new directory for a rank. It is empty, even if the rank had a pod before."""
        path = self._directory / f"{len(self.agents)}"
        path.mkdir()
        return path

    def check(self, new: SimulatedAgent) -> None:
        """Check that no other program of the same rank runs, and no other program on the same node.

        Called when a program starts and when its machine thaws.
        """
        for other in self._by_pod.values():
            if other is not new and other.running:
                same = other.key.task_id == new.key.task_id and other.key.rank == new.key.rank
                self._require(not same, new, other, "beside")
                self._require(other.node != new.node, new, other, "on the node of")

    def _require(self, queued: bool, new: SimulatedAgent, other: SimulatedAgent, how: str) -> None:
        if not queued:
            why = f"{new.key} runs on {new.node} {how} {other.key} on {other.node}"
            self.failures.append(AssertionError(why))

    def state_saved(self, key: RankKey, value: int) -> None:
        """Record that a server has stored this state."""
        self.states[key.task_id] = max(self.states[key.task_id], value)

    def state_received(self, key: RankKey, value: int, floor: int) -> None:
        """Check the state that a server sends to an agent: at least `floor`, which was stored before the run began."""
        if value < floor:
            self.failures.append(AssertionError(f"{key} found state {value}, {floor} was kept"))

    def freeze(self, node: str) -> list[SimulatedAgent]:
        """Freeze a machine, and return its agents."""
        self.kubelet.frozen_nodes.add(node)
        frozen = [agent for agent in self._by_pod.values() if agent.node == node]
        for agent in frozen:
            agent.freeze()
        return frozen

    def thaw(self, node: str, frozen: list[SimulatedAgent]) -> None:
        """Thaw a machine and the agents that `freeze` returned."""
        self.kubelet.frozen_nodes.discard(node)
        for agent in frozen:
            agent.thaw()
        for agent in frozen:
            asyncio.get_running_loop().call_later(0.0, self._check_woken, agent)

    def close(self) -> None:
        for agent in self.active:
            agent.vanish()

    def _check_woken(self, agent: SimulatedAgent) -> None:
        """Check an agent after its machine has thawed and its supervisor has run."""
        agent.woke_dying = agent.over
        if agent.running:
            self.check(agent)

    def _began(self, local: LocalPod) -> None:
        """Start the agent of a pod that has begun to run."""
        key = key_of(local.pod.body["metadata"]["labels"])
        assert key is not None
        agent = SimulatedAgent(self, local, key, self.network.connect_from(local.node))
        self.agents.append(agent)
        self._by_pod[local.pod.uid] = agent
        run_outside(agent.begin)

    def _of(self, local: LocalPod, act: Callable[[SimulatedAgent], None]) -> None:
        """Call a method of a pod's agent, and forget the agent when nothing of it is left."""
        agent = self._by_pod.get(local.pod.uid)
        if agent is not None and agent.local is local:
            run_outside(act, agent)
            if not agent.alive and not agent.program.exists:
                del self._by_pod[local.pod.uid]
