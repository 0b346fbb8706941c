"""Injects faults into a simulation, by one seed: links, agents, programs, machines, kubelets and servers fall silent.

Clocks of servers jump as well. Several faults may hit one node at once, as with a broken switch or a full disk: its
kubelet is silent, packets are lost in one direction, an agent hangs. A fault lasts 5, 31 or 61 seconds, or until the
injector ends. The faults that make the cluster give a node up last longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from random import Random
from typing import TypeVar

from hai_backend.testing.kube import FakeCluster
from tests.support.direct_transport import SimulatedTransport
from tests.support.simulation.agent_pool import AgentPool
from tests.support.simulation.channel import Fault, LinkDirection
from tests.support.simulation.network import Network
from tests.support.simulation.server import SimulatedServer
from tests.support.virtual_time import run_outside

T = TypeVar("T")
_SECONDS = (5.0, 31.0, 61.0, inf)
_WEIGHTS = (3, 4, 5, 2)
_FOR_GOOD = (150.0, 200.0, inf)  # longer than it takes until ranks are started elsewhere
_SLOW = Fault(delay_seconds=13.0)  # plus an interval of heartbeats: just tolerable
_SLOW_STEPS, _SLOW_STEP_SECONDS = 4, 15.0
_FAULTS = (
    Fault(hold=True),
    Fault(hold=True),
    Fault(drop=True),
    Fault(drop=True),
    Fault(delay_seconds=4.0),
    Fault(delay_seconds=25.0),
)
Undo = Callable[[], None]


class FaultInjector:
    """Injects faults from `begin` until `end`, which removes all faults.

    `seconds` is the mean time between faults. `quiet` is the part of them by which a node is lost for long.
    """

    def __init__(
        self,
        cluster: FakeCluster,
        pool: AgentPool,
        network: Network,
        transport: SimulatedTransport,
        servers: Callable[[], list[SimulatedServer]],
        random: Random,
        seconds: float,
        quiet: float,
        log: Callable[[str], None],
    ) -> None:
        self._machines = cluster.nodes
        self._pool = pool
        self._network = network
        self._transport = transport
        self._servers = servers
        self._random = random
        self._seconds, self._quiet = seconds, quiet
        self._log = log
        self._open: dict[int, Undo] = {}
        self._count = 0
        self._over = False
        self._timer: asyncio.TimerHandle | None = None
        self.stopped_kubelets: set[str] = set()

    def begin(self) -> None:
        self._next()

    def end(self) -> None:
        """Remove all faults, and inject no more."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        while self._open:
            self._undo(next(iter(self._open)))

    def _next(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._random.expovariate(1 / self._seconds), self._strike)

    def _strike(self) -> None:
        """Cause a random fault, and set the time of the next one."""
        node = self._random.choice(self._machines.names)
        busy = sorted({agent.node for agent in self._pool.active if agent.running})
        if self._random.random() < self._quiet:
            self._lose_quietly(self._random.choice(busy or [node]))
        elif self._random.random() < 0.7:
            self._strike_node(node)
        else:
            self._strike_server()
        self._next()

    def _strike_node(self, node: str) -> None:
        """Cause one to three random faults of a node."""
        seconds = self._duration()
        acts = self._random.choices(
            (
                self._silence_link,
                self._stop_kubelet,
                self._freeze_agents,
                self._freeze_programs,
                self._freeze_machine,
                self._reset,
            ),
            weights=(6, 4, 2, 2, 1, 1),
            k=self._random.choice((1, 2, 2, 3)),
        )
        for act in dict.fromkeys(acts):
            act(node, seconds if self._random.random() < 0.5 else self._duration())

    def _lose_quietly(self, node: str) -> None:
        """Make the cluster lose the node until its ranks start elsewhere. Agents on the node may not notice."""
        if self._random.random() < 0.2:
            return self._freeze_machine(node, self._long())
        if self._random.random() < 0.3:
            return self._slow_down_and_lose(node)
        acts: tuple[Callable[[str], None], ...] = (
            self._cut_off,
            self._cut_off,
            lambda node: self._freeze_agents(node, self._long()),
            lambda node: self._freeze_agents(node, self._long()),
            lambda node: None,
        )
        self._random.choice(acts)(node)
        self._after(self._random.uniform(0.0, 20.0), self._stop_kubelet, node, self._long())

    def _cut_off(self, node: str) -> None:
        """Hold back or drop all packets of a node."""
        directions = [
            direction for link in self._network.links(node) for direction in (link.up, link.down)
        ]
        fault = self._random.choice((Fault(hold=True), Fault(drop=True)))
        self._silence(directions, f"of {node}", self._random.choice((61.0, *_FOR_GOOD)), fault)

    def _slow_down_and_lose(self, node: str) -> None:
        """Delay the messages to agents more and more, then cut the node off.

        The last messages arrive late, after more time than any safety margin.
        """
        directions = [link.down for link in self._network.links(node)]
        for step in range(_SLOW_STEPS):
            self._after(
                step * _SLOW_STEP_SECONDS, self._silence, directions, f"of {node}", inf, _SLOW
            )
        slow_seconds = _SLOW_STEPS * _SLOW_STEP_SECONDS
        self._after(slow_seconds, self._stop_kubelet, node, self._long())
        self._after(slow_seconds + self._random.uniform(0.0, 12.0), self._cut_off, node)

    def _after(self, seconds: float, act: Callable[..., None], *args: object) -> None:
        asyncio.get_running_loop().call_later(seconds, self._unless_over, act, *args)

    def _unless_over(self, act: Callable[..., None], *args: object) -> None:
        if not self._over:
            act(*args)

    def _long(self) -> float:
        return self._random.choice(_FOR_GOOD)

    def _strike_server(self) -> None:
        acts: tuple[Callable[[float], None], ...] = (
            self._silence_server,
            self._cut_off_api,
            self._set_clocks,
        )
        self._random.choice(acts)(self._duration())

    def _duration(self) -> float:
        return self._random.choices(_SECONDS, weights=_WEIGHTS)[0]

    # Faults of nodes.

    def _silence_link(self, node: str, seconds: float) -> None:
        """Disturb the links between a node and one or all servers, in one or both directions."""
        address = self._random.choice(("", *self._network.addresses))
        links = [self._network.link(node, a) for a in self._network.addresses if address in ("", a)]
        for directions in self._some([[k.up for k in links], [k.down for k in links]]):
            self._silence(directions, f"of {node}", seconds)

    def _silence(
        self,
        directions: list[LinkDirection],
        whose: str,
        seconds: float,
        fault: Fault | None = None,
    ) -> None:
        fault, cause = fault or self._random.choice(_FAULTS), object()
        for direction in directions:
            direction.add(cause, fault)

        def heal() -> None:
            for direction in directions:
                direction.remove(cause)

        self._later(seconds, heal)
        self._log(f"links {whose}: {fault} for {seconds:g} s")

    def _stop_kubelet(self, node: str, seconds: float) -> None:
        """Stop the heartbeats of a node. It becomes NotReady, although its pods and its network work."""
        if self._machines.is_alive(node) and node not in self.stopped_kubelets:
            self.stopped_kubelets.add(node)
            self._machines.partition(node)
            self._later(seconds, lambda: self._start_kubelet(node))
            self._log(f"the kubelet of {node} stops for {seconds:g} s")

    def _start_kubelet(self, node: str) -> None:
        if node in self.stopped_kubelets:
            self.stopped_kubelets.discard(node)
            self._machines.heal(node)

    def _freeze_agents(self, node: str, seconds: float) -> None:
        for agent in self._pool.active:
            if agent.node == node:
                agent.process.freeze()
                self._later(seconds, agent.process.thaw)
                self._log(f"the agent of {agent.key} is frozen for {seconds:g} s")

    def _freeze_programs(self, node: str, seconds: float) -> None:
        for agent in self._pool.active:
            if agent.node == node and agent.program.exists:
                agent.program.process.freeze()
                self._later(seconds, agent.program.process.thaw)
                self._log(f"the program of {agent.key} is frozen for {seconds:g} s")

    def _freeze_machine(self, node: str, seconds: float) -> None:
        """Freeze all processes of a node, and its kubelet."""
        if node in self.stopped_kubelets or not self._machines.is_alive(node):
            return
        self._machines.partition(node)
        frozen = self._pool.freeze(node)
        self._log(f"{node} stands still for {seconds:g} s")

        def thaw() -> None:
            self._pool.thaw(node, frozen)
            self._machines.heal(node)

        self._later(seconds, thaw)

    def _reset(self, node: str, seconds: float) -> None:
        for address in self._network.addresses:
            self._network.reset(node, address)
        self._log(f"connections of {node} are reset")

    # Faults of servers.

    def _silence_server(self, seconds: float) -> None:
        """Disturb the links between a server and all nodes. The API server and the database stay reachable."""
        address = self._random.choice(self._network.addresses)
        links = [self._network.link(node, address) for node in self._machines.names]
        for directions in self._some([[k.up for k in links], [k.down for k in links]]):
            self._silence(directions, f"of {address}", seconds)

    def _cut_off_api(self, seconds: float) -> None:
        self._transport.disconnect()
        self._later(seconds, self._transport.reconnect)
        self._log(f"servers cannot reach the API server for {seconds:g} s")

    def _set_clocks(self, seconds: float) -> None:
        jump = self._random.choice((-1, 1)) * self._random.choice((5.0, 61.0, 900.0))
        for server in self._servers():
            server.clock.ahead_seconds += jump
            self._later(seconds, server.clock.reset)
            self._log(f"a server's clock jumps by {jump:g} s for {seconds:g} s")

    def _some(self, both: list[T]) -> list[T]:
        """Return the first item, the second, or both."""
        return self._random.choice((both[:1], both[1:], both))

    def _later(self, seconds: float, undo: Undo) -> None:
        """Call `undo` after so many seconds, or when the injector ends."""
        if self._over:
            return undo()
        self._count += 1
        number = self._count
        self._open[number] = undo
        if seconds < inf:
            asyncio.get_running_loop().call_later(seconds, self._undo, number)

    def _undo(self, number: int) -> None:
        undo = self._open.pop(number, None)
        if undo is not None:
            run_outside(undo)
