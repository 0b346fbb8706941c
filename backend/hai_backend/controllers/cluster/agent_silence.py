"""Which agents the server does not hear, written into their tasks: nothing is polled, one timer serves all ranks.

An agent is expected to be heard while the program of its rank may run (`lifecycle.transition.may_run`). A server that
stood still itself has heard nobody: what agents sent meanwhile is read after the timer has rung, so nobody is judged
then.
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
from hai_backend.lifecycle.transition import may_run

_LATE_SECONDS = 1.0  # a timer that rings so late tells that the server stood still
_ROUNDING_SECONDS = 0.001
_TOGETHER = 0.1  # of `silent_after`, between two writes


class Ledger(Protocol):
    """The part of the ledger."""

    def unfinished(self) -> Mapping[int, Task]: ...
    async def insist(self, task_id: int, event: ev.Event) -> Task: ...


class AgentSilence:
    """`load` once, then `heard` with each message of an agent and `changed` with each change of a task.

    `silent_after`, `return_within`: seconds without a message; and seconds in which agents come back to a server that
    was away. `count` hears how many agents are silent.
    """

    def __init__(
        self,
        task_manager: Ledger,
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
        self._heard: OrderedDict[RankKey, float] = OrderedDict()  # when, the oldest first
        self._silent: dict[RankKey, float] = {}  # since when, in seconds since the epoch
        self._writing: set[RankKey] = set()
        self._patient_until = inf
        self._timer: asyncio.TimerHandle | None = None

    def load(self, tasks: Iterable[Task]) -> None:
        """Agents may come back from now on; all of them have their time for it."""
        self._be_patient(self._return_within + self._silent_after)
        for task in tasks:
            self._follow(task, _ranks(task))
        self._count(len(self._silent))
        self._set_timer()

    def heard(self, key: RankKey) -> None:
        """An agent has sent something."""
        try:
            self._heard.move_to_end(key)
        except KeyError:  # nothing is expected of it, or it was silent
            if self._silent.pop(key, None) is not None:
                self._expect(key)
                self._write(key)
        else:
            self._heard[key] = self._now()

    def changed(self, before: Task | None, task: Task) -> None:
        """Follow a task."""
        self._follow(task, _changed_ranks(before, task))

    def close(self) -> None:
        """This server does not lead any more."""
        self._silent.clear()
        self._heard.clear()
        self._count(0)
        if self._timer is not None:
            self._timer.cancel()

    def _follow(self, task: Task, ranks: Iterable[tuple[Run, Rank]]) -> None:
        for run, rank in ranks:
            key = RankKey(task.id, run.number, rank.index)
            if task.state is not TaskState.RUNNING or run is not task.run or not may_run(rank):
                self._forget(key)
            elif rank.silent_since is None:
                if key not in self._heard and key not in self._silent:
                    self._expect(key)
            elif key not in self._heard:  # a server before this one did not hear it
                self._silent[key] = rank.silent_since

    def _forget(self, key: RankKey) -> None:
        self._heard.pop(key, None)
        if self._silent.pop(key, None) is not None:
            self._count(len(self._silent))

    def _expect(self, key: RankKey) -> None:
        self._heard[key] = self._now()
        self._set_timer()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _be_patient(self, seconds: float) -> None:
        self._patient_until = self._now() + seconds

    def _set_timer(self) -> None:
        """For the agent that was not heard for longest. When it is heard meanwhile, the timer rings too early once."""
        if self._timer is None and self._heard and self._patient_until < inf:
            oldest = next(iter(self._heard.values()))
            due = max(oldest + self._silent_after, self._patient_until) + _ROUNDING_SECONDS
            self._timer = asyncio.get_running_loop().call_at(due, self._ring, due)

    def _ring(self, due: float) -> None:
        self._timer = None
        late = self._now() - due
        if late > self._silent_after / 2 and late > _LATE_SECONDS:  # agents may have left
            self._be_patient(self._return_within + self._silent_after)
        elif late > _LATE_SECONDS:
            self._be_patient(_LATE_SECONDS)
        else:
            self._judge()
        self._set_timer()

    def _judge(self) -> None:
        overdue = list(self._overdue())
        if overdue:  # where a network breaks, more follow: they are written together
            self._be_patient(self._silent_after * _TOGETHER)
        for key in overdue:
            self._silent[key] = self._clock.now() - (self._now() - self._heard.pop(key))
            self._write(key)

    def _overdue(self) -> Iterator[RankKey]:
        now = self._now()
        for key, heard in self._heard.items():
            if heard + self._silent_after > now:
                return
            yield key

    def _write(self, key: RankKey) -> None:
        """Let the task know; one write of a rank at a time, so that the last one is what is true."""
        self._count(len(self._silent))
        if key not in self._writing:
            self._writing.add(key)
            self._run(self._write_all(key))

    async def _write_all(self, key: RankKey) -> None:
        try:
            while (event := self._unwritten(key)) is not None:
                await self._task_manager.insist(key.task_id, event)
        finally:
            self._writing.discard(key)

    def _unwritten(self, key: RankKey) -> ev.AgentSilent | ev.AgentHeard | None:
        """What the task does not know yet."""
        task = self._task_manager.unfinished().get(key.task_id)
        run = task.run if task is not None else None
        if task is None or task.state is not TaskState.RUNNING or run is None:
            return None
        if run.number != key.run or not may_run(rank := run.ranks[key.rank]):
            return None
        since = self._silent.get(key)
        if since is None:
            known = rank.silent_since is None
            return None if known else ev.AgentHeard(key.run, key.rank)
        known = rank.silent_since is not None
        return None if known else ev.AgentSilent(key.run, key.rank, since)


def _ranks(task: Task) -> Iterator[tuple[Run, Rank]]:
    if task.run is not None:
        for rank in task.run.ranks:
            yield task.run, rank


def _changed_ranks(before: Task | None, task: Task) -> Iterator[tuple[Run, Rank]]:
    """Ranks of the task that are not what they were, and those of a run that is not there any more."""
    old, new = before.run if before is not None else None, task.run
    if old is None or new is None or old.number != new.number or before is None:
        yield from _ranks(before) if before is not None else ()
        yield from _ranks(task)
    elif before.state is not task.state:
        yield from _ranks(task)
    else:
        for was, rank in zip(old.ranks, new.ranks, strict=True):
            if was is not rank:
                yield new, rank
