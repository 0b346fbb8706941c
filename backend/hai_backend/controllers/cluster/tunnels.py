"""Open tunnels between a caller and an agent. The agent opens its side when the server requests it.

If one side does not read, the other side may send only WINDOW_BYTES more. The server therefore buffers little data.
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

PIECE_BYTES = 64 * 1024  # largest amount of data in one message
PER_USER = 64
_MAX_BYTES = 8 * WINDOW_BYTES  # larger than the window, because messages of an agent may be large
_REACH_SECONDS = 10.0
_OPEN_STATES = (RunState.RUNNING, RunState.SUSPENDING, RunState.STOPPING)

Message = TypeVar("Message")


class Pipe(Generic[Message]):
    """A queue for one direction. After `close`, queued messages can still be taken, and new ones are dropped."""

    def __init__(self) -> None:
        self._waiting: deque[Message] = deque()
        self._open = True
        self._filled = asyncio.Event()

    def put(self, message: Message) -> None:
        """Add a message. The sender limits the amount of queued data (launch.flow_control)."""
        if self._open:
            self._waiting.append(message)
            self._filled.set()

    async def take(self) -> Message | None:
        """Wait for the next message. Return None if the pipe is closed and empty."""
        while not self._waiting and self._open:
            self._filled.clear()
            await self._filled.wait()
        return self._waiting.popleft() if self._waiting else None

    def close(self) -> None:
        """Close the pipe. A closed pipe can be closed again."""
        self._open = False
        self._filled.set()


class Tunnel:
    """One connection to a rank. `why` is the error that ended it, or None."""

    def __init__(self, key: RankKey, check_access: Callable[[], None]) -> None:
        self.key = key
        self.name = secrets.token_urlsafe(24)
        self.to_rank: Pipe[pb.CarryResponse] = Pipe()
        self.to_caller: Pipe[pb.CarryRequest] = Pipe()
        self.why: HaiError | None = None
        self._check_access = check_access
        self._ended = False
        self._one_direction_ended = False
        self._window = SendWindow()  # limits the data of the caller
        self._taken = ReceivedBytes()  # bytes that the caller has taken
        self._received_bytes = 0  # bytes that the agent has sent
        self._reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def confirm_reached(self) -> None:
        """Record that the agent has opened its side, after it has connected to the target."""
        if not self._reached.done():
            self._reached.set_result(None)

    def end(self, why: HaiError | None = None) -> None:
        """End the tunnel on both sides. Only the error of the first call counts."""
        if self._ended:
            return
        self._ended, self.why = True, why
        self.to_rank.close()
        self.to_caller.close()
        self._window.unblock()
        self.confirm_reached()

    async def next_for_caller(self) -> pb.CarryRequest | None:
        """Wait for the next message to the caller, and acknowledge it to the agent. Return None after the last one."""
        message = await self.to_caller.take()
        if message is not None and self._taken.add(len(message.data) + len(message.error_data)):
            self.to_rank.put(pb.CarryResponse(taken=self._taken.count))
        return message

    async def send_to_rank(self, message: pb.CarryResponse) -> bool:
        """Send a message to the rank, when the window permits it. Return False if the tunnel has ended."""
        await self._window.reserve(len(message.data))
        self.to_rank.put(message)
        return not self._ended

    def receive_from_agent(self, message: pb.CarryRequest) -> None:
        """Process a message of the agent. End the tunnel if the agent sends more than it may, to limit memory."""
        if message.WhichOneof("message") == "taken":
            return self._window.acknowledge(message.taken)
        # An empty message also counts.
        self._received_bytes += max(1, len(message.data) + len(message.error_data))
        if self._received_bytes - self._taken.count > _MAX_BYTES:
            return self.end(
                Unavailable(f"the agent of rank {self.key} breaks the rules of tunnels")
            )
        self.to_caller.put(message)

    def end_direction(self) -> None:
        """Record the normal end of one direction. The tunnel ends with the second direction."""
        if self._one_direction_ended:
            self.end()
        self._one_direction_ended = True

    def check(self) -> None:
        """End the tunnel if its caller no longer has access."""
        try:
            self._check_access()
        except HaiError as error:
            self.end(error)

    async def wait_reached(self) -> None:
        """Return when the agent has connected to the target. Raises HaiError if the agent cannot, or after 10 s."""
        try:
            async with asyncio.timeout(_REACH_SECONDS):
                await asyncio.shield(self._reached)
        except TimeoutError:
            self.end(Unavailable(f"the agent of rank {self.key} does not answer; try again"))
        if self.why is not None:
            raise self.why


class Tunnels:
    """All open tunnels, by name."""

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
        check_access: Callable[[], None] = lambda: None,
        limit: int = PER_USER,
    ) -> Iterator[Tunnel]:
        """Open a tunnel for the time of the block; await `wait_reached` before use.

        `check_access` raises HaiError as soon as the caller may no longer use the tunnel. Raises Exhausted if the user
        has too many tunnels, and Unavailable while the agent is not attached.
        """
        if self._per_user[user] >= limit:
            raise Exhausted(
                f"{user} has {limit} open tunnels, which is the limit; close some",
                reason="TOO_MANY_TUNNELS",
            )
        tunnel = self._request(key, target, check_access)
        self._open[tunnel.name] = tunnel
        self._per_user[user] += 1
        try:
            yield tunnel
        finally:
            tunnel.end()
            del self._open[tunnel.name]
            self._per_user -= Counter([user])  # removes users without open tunnels

    def _request(
        self, key: RankKey, target: TunnelTarget, check_access: Callable[[], None]
    ) -> Tunnel:
        tunnel = Tunnel(key, check_access)
        request = pb.TunnelAsked(tunnel=tunnel.name, target=target)
        if not self._agents.send_if_attached(key, pb.AttachResponse(open_tunnel=request)):
            raise Unavailable(f"the agent of rank {key} is not connected just now; try again")
        return tunnel

    def accept(self, key: RankKey, name: str) -> Tunnel:
        """Return the tunnel that an agent opens. Raises NotFound if it has ended or belongs to another rank."""
        tunnel = self._open.get(name)
        if tunnel is None or tunnel.key != key:
            raise NotFound("there is no such tunnel any more", reason="NO_SUCH_TUNNEL")
        return tunnel

    def follow(self, task: Task) -> None:
        """End tunnels to ranks that have ended, after a change of the task."""
        for tunnel in list(self._open.values()):
            if tunnel.key.task_id == task.id and rank_of(task, tunnel.key.rank) != tunnel.key:
                gone = f"rank {tunnel.key.rank} of task {task.id} has ended"
                tunnel.end(
                    Conflict(f"{gone}; `hai status {task.id}` says how", reason="RANK_ENDED")
                )

    def check(self) -> None:
        """End tunnels whose callers no longer have access. Called when rights may have changed."""
        for tunnel in list(self._open.values()):
            tunnel.check()

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)


def rank_of(task: Task, rank: int) -> RankKey | None:
    """Return the key of a rank to which tunnels may be opened, or None if the rank does not run."""
    run = task.run
    if task.state is not TaskState.RUNNING or run is None or run.state not in _OPEN_STATES:
        return None
    if not 0 <= rank < len(run.ranks) or run.ranks[rank].exit_code is not None:
        return None
    return None if run.ranks[rank].state.terminated else RankKey(task.id, run.number, rank)
