"""Open tunnels: between somebody who calls, and an agent that was told to call back. Holds bytes only for a moment.

Who does not read makes the other side wait: nobody is more than LEAD_BYTES ahead.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from hai.v1 import agent_service_pb2 as pb
from hai.v1.tunnel_pb2 import TunnelTarget
from hai_backend.controllers.cluster.agents import ConnectedAgents
from hai_backend.domain.errors import Conflict, Exhausted, HaiError, NotFound, Unavailable
from hai_backend.domain.task import RunState, Task, TaskState
from hai_backend.launch.base import RankKey
from hai_backend.launch.flow_control import WINDOW_BYTES, ReceivedBytes, SendWindow

PIECE_BYTES = 64 * 1024  # at most, in one message
PER_USER = 64
_MAX_BYTES = 8 * WINDOW_BYTES  # an agent's messages may be large
_REACH_SECONDS = 10.0
_OPEN_STATES = (RunState.RUNNING, RunState.SUSPENDING, RunState.STOPPING)

Message = TypeVar("Message")


class Pipe(Generic[Message]):
    """One direction. After `close`, what is in it can still be taken; what is put is dropped."""

    def __init__(self) -> None:
        self._waiting: deque[Message] = deque()
        self._open = True
        self._filled = asyncio.Event()

    def put(self, message: Message) -> None:
        """How much may wait is the sender's affair (launch.flow_control)."""
        if self._open:
            self._waiting.append(message)
            self._filled.set()

    async def take(self) -> Message | None:
        """The next one; None: there will be no more."""
        while not self._waiting and self._open:
            self._filled.clear()
            await self._filled.wait()
        return self._waiting.popleft() if self._waiting else None

    def close(self) -> None:
        """Twice is not an error."""
        self._open = False
        self._filled.set()


class Tunnel:
    """One connection into a rank. `why` says what ended it, if it did not end by itself."""

    def __init__(self, key: RankKey, admitted: Callable[[], None]) -> None:
        self.key = key
        self.name = secrets.token_urlsafe(24)
        self.to_rank: Pipe[pb.CarryResponse] = Pipe()
        self.to_caller: Pipe[pb.CarryRequest] = Pipe()
        self.why: HaiError | None = None
        self._admitted = admitted
        self._ended = False
        self._half_ended = False
        self._window = SendWindow()  # of the caller
        self._taken = ReceivedBytes()  # by the caller
        self._received_bytes = 0  # bytes by the agent
        self._carried: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def carried(self) -> None:
        """The agent has called back: it has reached the target."""
        if not self._carried.done():
            self._carried.set_result(None)

    def end(self, why: HaiError | None = None) -> None:
        """Both sides notice; the first end counts."""
        if self._ended:
            return
        self._ended, self.why = True, why
        self.to_rank.close()
        self.to_caller.close()
        self._window.unblock()
        self.carried()

    async def next_for_caller(self) -> pb.CarryRequest | None:
        """The next message for the caller; None: there will be no more. The agent learns that it was taken."""
        message = await self.to_caller.take()
        if message is not None and self._taken.add(len(message.data) + len(message.error_data)):
            self.to_rank.put(pb.CarryResponse(taken=self._taken.count))
        return message

    async def send_to_rank(self, message: pb.CarryResponse) -> bool:
        """To the rank, as fast as it takes it. False: nobody hears it any more."""
        await self._window.reserve(len(message.data))
        self.to_rank.put(message)
        return not self._ended

    def receive_from_agent(self, message: pb.CarryRequest) -> None:
        """By the agent. One that brings more than it may is cut off: it could fill our memory."""
        if message.WhichOneof("message") == "taken":
            return self._window.acknowledge(message.taken)
        self._received_bytes += max(
            1, len(message.data) + len(message.error_data)
        )  # an empty one, too
        if self._received_bytes - self._taken.count > _MAX_BYTES:
            return self.end(
                Unavailable(f"the agent of rank {self.key} breaks the rules of tunnels")
            )
        self.to_caller.put(message)

    def end_half(self) -> None:
        """One direction has ended by itself; with the second one all has."""
        if self._half_ended:
            self.end()
        self._half_ended = True

    def check(self) -> None:
        """End it if its caller would not be let in any more."""
        try:
            self._admitted()
        except HaiError as error:
            self.end(error)

    async def reached(self) -> None:
        """Return when the target is. Raises why it is not."""
        try:
            async with asyncio.timeout(_REACH_SECONDS):
                await asyncio.shield(self._carried)
        except TimeoutError:
            self.end(Unavailable(f"the agent of rank {self.key} does not answer; try again"))
        if self.why is not None:
            raise self.why


class Tunnels:
    """By name. Every tunnel is in here from its opening to its end."""

    def __init__(self, agents: ConnectedAgents) -> None:
        self._agents = agents
        self._open: dict[str, Tunnel] = {}
        self._per_user: Counter[str] = Counter()

    @contextmanager
    def opened(
        self,
        key: RankKey,
        target: TunnelTarget,
        user: str,
        admitted: Callable[[], None] = lambda: None,
        limit: int = PER_USER,
    ) -> Iterator[Tunnel]:
        """A tunnel that the agent was told of; await `reached`. `admitted` raises when its caller may no longer.

        Raises Exhausted, and Unavailable while the agent is not attached.
        """
        if self._per_user[user] >= limit:
            raise Exhausted(
                f"{user} has {limit} open tunnels, which is the limit; close some",
                reason="TOO_MANY_TUNNELS",
            )
        tunnel = self._request(key, target, admitted)
        self._open[tunnel.name] = tunnel
        self._per_user[user] += 1
        try:
            yield tunnel
        finally:
            tunnel.end()
            del self._open[tunnel.name]
            self._per_user -= Counter([user])  # no trace is left of whoever has none

    def _request(self, key: RankKey, target: TunnelTarget, admitted: Callable[[], None]) -> Tunnel:
        tunnel = Tunnel(key, admitted)
        request = pb.TunnelAsked(tunnel=tunnel.name, target=target)
        if not self._agents.send_if_attached(key, pb.AttachResponse(open_tunnel=request)):
            raise Unavailable(f"the agent of rank {key} is not connected just now; try again")
        return tunnel

    def accept(self, key: RankKey, name: str) -> Tunnel:
        """The tunnel that an agent carries. Raises NotFound: it is over, or was never this rank's."""
        tunnel = self._open.get(name)
        if tunnel is None or tunnel.key != key:
            raise NotFound("there is no such tunnel any more", reason="NO_SUCH_TUNNEL")
        return tunnel

    def follow(self, task: Task) -> None:
        """A task has changed: tunnels into ranks that are over end."""
        for tunnel in list(self._open.values()):
            if tunnel.key.task_id == task.id and rank_of(task, tunnel.key.rank) != tunnel.key:
                gone = f"rank {tunnel.key.rank} of task {task.id} has ended"
                tunnel.end(
                    Conflict(f"{gone}; `hai status {task.id}` says how", reason="RANK_ENDED")
                )

    def check(self) -> None:
        """Who may do what has changed."""
        for tunnel in list(self._open.values()):
            tunnel.check()

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)


def rank_of(task: Task, rank: int) -> RankKey | None:
    """The rank of a task that tunnels may lead into; None: it does not run."""
    run = task.run
    if task.state is not TaskState.RUNNING or run is None or run.state not in _OPEN_STATES:
        return None
    if not 0 <= rank < len(run.ranks) or run.ranks[rank].exit_code is not None:
        return None
    return None if run.ranks[rank].state.terminated else RankKey(task.id, run.number, rank)
