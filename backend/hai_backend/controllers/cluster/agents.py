"""Connected agents, and messages to them. Nothing is stored, because agents repeat their reports after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from hai.v1 import agent_service_pb2 as pb
from hai_backend.launch.base import RankKey

_RETURNS_PER_SECOND = 1000.0  # so many agents attach without delaying users much
_LONGEST_RETURN = 5.0  # seconds; shorter than lifecycle.limits.Limits.return_within
_LAST_STEP = 2**63 - 1  # largest step that a message can contain


class Session:
    """One connected agent, with a queue of messages for its stream. `error` is why the session was closed.

    `stored_log` is the offset up to which the log of the rank is stored, and `acknowledged_log` the one that the agent
    was told.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.stored_log = self.acknowledged_log = 0
        self._queue: asyncio.Queue[pb.AttachResponse | None] = asyncio.Queue()

    def send(self, message: pb.AttachResponse) -> None:
        self._queue.put_nowait(message)

    def close(self) -> None:
        """Close the session, because a newer stream of the rank is attached or the server stops."""
        self._queue.put_nowait(None)

    async def next(self) -> pb.AttachResponse | None:
        """Wait for the next message. Return None if the session was closed."""
        return await self._queue.get()


class ConnectedAgents:
    """The sessions by rank. Also determines the step at which all ranks of a run suspend."""

    def __init__(self) -> None:
        self._sessions: dict[RankKey, Session] = {}
        self._steps: dict[tuple[int, int], dict[int, int]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def return_within(self) -> float:
        """Return the seconds over which the agents must spread their return if this server ends now."""
        return min(len(self._sessions) / _RETURNS_PER_SECOND, _LONGEST_RETURN)

    def attach(self, key: RankKey, session: Session) -> None:
        """Add the session of a rank that has attached, and close an older session of the rank."""
        old = self._sessions.get(key)
        if old is not None:
            old.close()
        self._sessions[key] = session

    def detach(self, key: RankKey, session: Session) -> None:
        """Remove a session whose stream has ended. A newer session of the rank stays."""
        if self._sessions.get(key) is session:
            del self._sessions[key]

    def send(
        self, task_id: int, run: int, ranks: Iterable[int], message: pb.AttachResponse
    ) -> None:
        """Send a message to the attached ranks.

        Other ranks get their instructions when they attach (lifecycle.instructions_on_attach).
        """
        for rank in ranks:
            session = self._sessions.get(RankKey(task_id, run, rank))
            if session is not None:
                session.send(message)

    def send_if_attached(self, key: RankKey, message: pb.AttachResponse) -> bool:
        """Send a message that is only useful now. Return False if the rank is not attached."""
        session = self._sessions.get(key)
        if session is not None:
            session.send(message)
        return session is not None

    def step_reported(self, key: RankKey, step: int, expected: frozenset[int]) -> None:
        """Record the last step that a rank has completed.

        When all expected ranks have reported, send them the step before which all of them suspend. It follows the
        largest reported step.
        """
        steps = self._steps.setdefault((key.task_id, key.run), {})
        steps[key.rank] = step
        if not expected <= steps.keys():
            return
        first_not = min(max(steps.values()) + 1, _LAST_STEP)
        stop = pb.AttachResponse(suspend_at=pb.SuspendAtStep(step=first_not))
        self.send(key.task_id, key.run, expected, stop)

    def forget(self, task_id: int, run: int) -> None:
        """Remove the reported steps of a run that has ended."""
        self._steps.pop((task_id, run), None)

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
