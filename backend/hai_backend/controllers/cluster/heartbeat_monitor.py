"""Detects agents that have sent nothing for a while, and records this in their tasks. One timer serves all ranks.

An agent must send messages while the program of its rank may run (`lifecycle.rules.transition.may_run`). If the server
process itself was paused, it has not yet read the messages of that time, so it gives agents more time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from math import inf
from typing import Any, Protocol

from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.task import Rank, Run, Task, TaskState
from hai_backend.launch.base import RankKey
from hai_backend.lifecycle import events as ev
from hai_backend.lifecycle.rules.transition import may_run

_STALL_SECONDS = 1.0  # a timer that is late by more than this shows that the server was paused
_ROUNDING_SECONDS = 0.001
_BATCH_SHARE = 0.1  # time between two batches of writes, as a fraction of `silent_after`


class Tasks(Protocol):
    """The part of the task manager that is used here."""

    def unfinished(self) -> Mapping[int, Task]: ...
    async def apply_when_stored(self, task_id: int, event: ev.Event) -> Task: ...


class HeartbeatMonitor:
    """The silent agents of running programs.

    Call `load` once, then `message_received` for each message of an agent and `changed` for each change of a task. An
    agent is silent after `silent_after` seconds without a message. After a restart of the server, agents have
    `return_within` seconds to reconnect. `count` gets the number of silent agents.
    """

    def __init__(
        self,
        task_manager: Tasks,
        clock: Clock,
        run: Callable[[Coroutine[Any, Any, None]], object],
        *,
        silent_after: float,
        return_within: float,
        count: Callable[[int], None] = lambda silent: None,
    ) -> None:
        self._task_manager = task_manager
        self._clock = clock
        self._run = run
        self._silent_after = silent_after
        self._return_within = return_within
        self._count = count
        # time of the last message, the oldest first
        self._last_message: OrderedDict[RankKey, float] = OrderedDict()
        # start of the silence, in seconds since the Unix epoch
        self._silent: dict[RankKey, float] = {}
        self._writing: set[RankKey] = set()
        self._grace_until = inf
        self._timer: asyncio.TimerHandle | None = None

    def load(self, tasks: Iterable[Task]) -> None:
        """Start to watch the agents of these tasks. They have `return_within` seconds to reconnect."""
        self._extend_grace(self._return_within + self._silent_after)
        for task in tasks:
            self._follow(task, _ranks(task))
        self._count(len(self._silent))
        self._set_timer()

    def message_received(self, key: RankKey) -> None:
        """Record that an agent has sent a message."""
        try:
            self._last_message.move_to_end(key)
        except KeyError:  # no message was expected, or the agent was silent
            if self._silent.pop(key, None) is not None:
                self._expect(key)
                self._write(key)
        else:
            self._last_message[key] = self._now()

    def changed(self, before: Task | None, task: Task) -> None:
        """Watch the agents of a changed task. `before` is None if the task is new."""
        self._follow(task, _changed_ranks(before, task))

    def close(self) -> None:
        """Stop the timer of a server that no longer leads."""
        self._silent.clear()
        self._last_message.clear()
        self._count(0)
        if self._timer is not None:
            self._timer.cancel()

    def _follow(self, task: Task, ranks: Iterable[tuple[Run, Rank]]) -> None:
        for run, rank in ranks:
            key = RankKey(task.id, run.number, rank.index)
            if task.state is not TaskState.RUNNING or run is not task.run or not may_run(rank):
                self._remove(key)
            elif rank.silent_since is None:
                if key not in self._last_message and key not in self._silent:
                    self._expect(key)
            elif key not in self._last_message:  # it was already silent before this server started
                self._silent[key] = rank.silent_since

    def _remove(self, key: RankKey) -> None:
        self._last_message.pop(key, None)
        if self._silent.pop(key, None) is not None:
            self._count(len(self._silent))

    def _expect(self, key: RankKey) -> None:
        self._last_message[key] = self._now()
        self._set_timer()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _extend_grace(self, seconds: float) -> None:
        self._grace_until = self._now() + seconds

    def _set_timer(self) -> None:
        """Set the timer for the agent whose last message is the oldest.

        A later message of this agent does not change the timer. It then expires too early and is set again.
        """
        if self._timer is None and self._last_message and self._grace_until < inf:
            oldest = next(iter(self._last_message.values()))
            due = max(oldest + self._silent_after, self._grace_until) + _ROUNDING_SECONDS
            self._timer = asyncio.get_running_loop().call_at(due, self._on_timer, due)

    def _on_timer(self, due: float) -> None:
        self._timer = None
        late = self._now() - due
        if late > self._silent_after / 2 and late > _STALL_SECONDS:  # agents may have disconnected
            self._extend_grace(self._return_within + self._silent_after)
        elif late > _STALL_SECONDS:
            self._extend_grace(_STALL_SECONDS)
        else:
            self._check_agents()
        self._set_timer()

    def _check_agents(self) -> None:
        overdue = list(self._overdue())
        if overdue:
            # After a network failure, more agents will be silent soon. One batch then writes all of them.
            self._extend_grace(self._silent_after * _BATCH_SHARE)
        for key in overdue:
            self._silent[key] = self._clock.now() - (self._now() - self._last_message.pop(key))
            self._write(key)

    def _overdue(self) -> Iterator[RankKey]:
        now = self._now()
        for key, message_received in self._last_message.items():
            if message_received + self._silent_after > now:
                return
            yield key

    def _write(self, key: RankKey) -> None:
        """Record the silence of a rank, or its end. Writes of a rank are sequential, so that the last state is kept."""
        self._count(len(self._silent))
        if key not in self._writing:
            self._writing.add(key)
            self._run(self._write_all(key))

    async def _write_all(self, key: RankKey) -> None:
        try:
            while (event := self._pending_event(key)) is not None:
                await self._task_manager.apply_when_stored(key.task_id, event)
        finally:
            self._writing.discard(key)

    def _pending_event(self, key: RankKey) -> ev.AgentSilent | ev.AgentHeard | None:
        """Return the event that is not recorded yet, or None if the recorded state is current."""
        task = self._task_manager.unfinished().get(key.task_id)
        run = task.run if task is not None else None
        if task is None or task.state is not TaskState.RUNNING or run is None:
            return None
        if run.number != key.run or not may_run(rank := run.ranks[key.rank]):
            return None
        since = self._silent.get(key)
        if since is None:
            recorded = rank.silent_since is None
            return None if recorded else ev.AgentHeard(key.run, key.rank)
        recorded = rank.silent_since is not None
        return None if recorded else ev.AgentSilent(key.run, key.rank, since)


def _ranks(task: Task) -> Iterator[tuple[Run, Rank]]:
    if task.run is not None:
        for rank in task.run.ranks:
            yield task.run, rank


def _changed_ranks(before: Task | None, task: Task) -> Iterator[tuple[Run, Rank]]:
    """Return the ranks of the task that have changed, including those of an earlier run."""
    old, new = before.run if before is not None else None, task.run
    if old is None or new is None or old.number != new.number or before is None:
        yield from _ranks(before) if before is not None else ()
        yield from _ranks(task)
    elif before.state is not task.state:
        yield from _ranks(task)
    else:
        for previous, rank in zip(old.ranks, new.ranks, strict=True):
            if previous is not rank:
                yield new, rank
