"""Schedules of silences, each made from a seed: who falls silent, how, when, and for how long. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from random import Random

from hai_backend.domain.timing import Timing

TIMING = Timing(heartbeat=0.2, fence_after=3.0)
"""What agents of schedules are told: a lease of 2.4 s."""

_SHORT, _LONG = (0.02, 0.3), (0.3, 3.0)  # from, to: in leases
_FOR_EVER, _SHORT_ONES = 0.2, 0.3  # parts of all schedules: one silence never heals; all are short
_MOST_SILENCES = 3
_RECOVERY = 0.6  # of a lease, until it is certain that an agent has renewed it after a silence


class Kind(StrEnum):
    """Between the agent and the server, and who is stopped (SIGSTOP)."""

    HOLD = "bytes are held back both ways"
    HOLD_FORTH = "bytes to the server are held back"
    HOLD_BACK = "bytes to the agent are held back"
    DROP = "bytes are dropped both ways"
    DROP_FORTH = "bytes to the server are dropped"
    DROP_BACK = "bytes to the agent are dropped"
    AGENT_CLOSED = "the agent sees a close, the server does not"
    SERVER_CLOSED = "the server sees a close, the agent does not"
    REFUSE = "the server's port is closed, connections are reset"
    SERVER = "the server is stopped"
    PROGRAM = "the program is stopped"
    AGENT = "the agent is stopped"
    SUPERVISOR = "the supervisor is stopped"
    WATCHERS = "agent and supervisor are stopped"
    RANK = "agent, supervisor and program are stopped"


@dataclass(frozen=True, slots=True)
class Silence:
    """`after` counts from the start of the program; `lasts` inf: it never heals. Seconds."""

    kind: Kind
    after: float
    lasts: float

    def __str__(self) -> str:
        span = "for ever" if self.lasts == inf else f"for {self.lasts:.1f} s"
        return f"after {self.after:.1f} s {self.kind} {span}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """One story. `steps` 0: the program runs until it is ended."""

    seed: int
    silences: tuple[Silence, ...]
    steps: int
    pace: float
    prints: bool
    obeys: bool
    successor: bool  # a real one is started; else it is only looked whether it could be

    @property
    def healed_after(self) -> float:
        """Seconds after which the last silence that heals has healed."""
        ends = [s.after + s.lasts for s in self.silences if s.lasts < inf]
        return max(ends, default=0.0)

    @property
    def heals(self) -> bool:
        return all(silence.lasts < inf for silence in self.silences)

    @property
    def is_short(self) -> bool:
        """No agent may lose its lease: each silence is short, and there is time between two of them."""
        until = -_RECOVERY * TIMING.lease
        for silence in self.silences:
            if (
                silence.lasts > _SHORT[1] * TIMING.lease
                or silence.after < until + _RECOVERY * TIMING.lease
            ):
                return False
            until = silence.after + silence.lasts
        return True

    def arguments(self) -> list[str]:
        """Of program.py."""
        words = ["--pace", str(self.pace)]
        words += ["--steps", str(self.steps)] if self.steps else []
        words += [] if self.prints else ["--silent"]
        return words if self.obeys else [*words, "--stubborn"]

    def __str__(self) -> str:
        how = f"{'prints' if self.prints else 'is silent'}, {'obeys' if self.obeys else 'is stubborn'}"
        life = f"{self.steps} steps of {self.pace:g} s" if self.steps else "runs for ever"
        return f"seed {self.seed}: the program {how}, {life}; " + "; ".join(
            map(str, self.silences or ("nothing falls silent",))
        )


def schedule(seed: int) -> Schedule:
    """The same for the same seed."""
    random = Random(f"silence {seed}")
    span = _SHORT if random.random() < _SHORT_ONES else _LONG
    silences = [_silence(random, *span) for _ in range(random.randint(0, _MOST_SILENCES))]
    if silences and random.random() < _FOR_EVER and silences[-1].kind is not Kind.SERVER:
        silences[-1] = replace(silences[-1], lasts=inf)
    pace = random.choice((0.01, 0.05, 0.2))
    life = random.uniform(0.5, 4.0) * TIMING.lease
    return Schedule(
        seed,
        tuple(sorted(silences, key=lambda silence: silence.after)),
        steps=0 if random.random() < 0.3 else max(1, round(life / pace)),
        pace=pace,
        prints=random.random() < 0.6,
        obeys=random.random() < 0.5,
        successor=random.random() < 0.3,
    )


def _silence(random: Random, shortest: float, longest: float) -> Silence:
    kind = random.choice(tuple(Kind))
    lasts = random.uniform(shortest, longest) * TIMING.lease
    return Silence(kind, random.uniform(0.0, 1.5 * TIMING.lease), lasts)
