"""How long agents hold lines of their logs, so that one message brings many of them.

The number of messages is what output costs the server, not the number of bytes. So the delay grows with the number of
attached agents, and a small cluster has none. While somebody follows the log of a task, its agents hold lines for a
shorter time, which grows with the number of its ranks. Agents learn their delay from answered heartbeats; only the
begin of following is told to them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hai.v1 import agent_service_pb2 as pb
from hai_backend.controllers.cluster.agents import ConnectedAgents
from hai_backend.domain.task import Task

_MESSAGES_PER_SECOND = 700.0  # of all agents whose log nobody follows
_FOLLOWED_MESSAGES_PER_SECOND = 3000.0  # of all ranks of one task that is followed
# Longer than the time between two heartbeats, so that on a large cluster lines travel with heartbeats.
_MAX_SECONDS = 7.0


class LogDelay:
    """Says how long the agents of a task hold lines. `is_followed` says whether somebody follows the log of a task."""

    def __init__(
        self,
        connected_agents: ConnectedAgents,
        unfinished: Callable[[], Mapping[int, Task]],
        is_followed: Callable[[int], bool],
    ) -> None:
        self._connected_agents = connected_agents
        self._unfinished = unfinished
        self._is_followed = is_followed

    def seconds(self, task_id: int) -> float:
        """Return how long an agent of this task may hold lines."""
        delay = min(len(self._connected_agents) / _MESSAGES_PER_SECOND, _MAX_SECONDS)
        if self._is_followed(task_id):
            delay = min(delay, self._rank_count(task_id) / _FOLLOWED_MESSAGES_PER_SECOND)
        return delay

    def following_begins(self, task_id: int) -> None:
        """Tell the agents of a task that somebody follows its log now."""
        task = self._unfinished().get(task_id)
        if task is None or task.run is None:
            return
        followed = pb.LogFollowed(delay_seconds=self.seconds(task_id))
        ranks = range(len(task.run.ranks))
        message = pb.AttachResponse(log_followed=followed)
        self._connected_agents.send(task_id, task.run.number, ranks, message)

    def _rank_count(self, task_id: int) -> int:
        task = self._unfinished().get(task_id)
        return 0 if task is None or task.run is None else len(task.run.ranks)
