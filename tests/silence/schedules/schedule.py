"""Schedules of silences, each made from a seed: which process or link falls silent, how, when, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from random import Random

from hai_backend.domain.timing import Timing

TIMING = Timing(heartbeat=0.2, fence_after=3.0)
"""What agents of schedules are told: a lease of 2.4 s."""

_SHORT, _LONG = (0.02, 0.3), (0.3, 3.0)  # shortest and longest silence, in leases
_FOR_EVER, _SHORT_ONES = 0.2, 0.3  # parts: schedules with an endless silence, with short ones only
_MOST_SILENCES = 3
_RECOVERY = 0.6  # in leases: after so long, an agent has certainly renewed its lease


class Kind(StrEnum):
    """How the connection between agent and server is disturbed, or which processes are stopped (SIGSTOP)."""

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
    DOUBT = "the server answers, but renews no lease, for it cannot be sure that it leads"
    PROGRAM = "the program is stopped"
    AGENT = "the agent is stopped"
    SUPERVISOR = "the supervisor is stopped"
    WATCHERS = "agent and supervisor are stopped"
    RANK = "agent, supervisor and program are stopped"


STOPPED = {
    Kind.PROGRAM: ("program",),
    Kind.AGENT: ("agent",),
    Kind.SUPERVISOR: ("supervisor",),
    Kind.WATCHERS: ("agent", "supervisor"),
    Kind.RANK: ("agent", "supervisor", "program"),
}
"""Who gets SIGSTOP."""
_OFTEN = {Kind.AGENT: 3, Kind.SUPERVISOR: 2, Kind.HOLD: 2}


@dataclass(frozen=True, slots=True)
class Silence:
    """One silence. `after` counts from the start of the program, in seconds. `lasts` is inf if it never ends."""

    kind: Kind
    after: float
    lasts: float

    def __str__(self) -> str:
        span = "for ever" if self.lasts == inf else f"for {self.lasts:.1f} s"
        return f"after {self.after:.1f} s {self.kind} {span}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The silences and the program of one scenario. If `steps` is 0, the program runs until it is ended."""

    seed: int
    silences: tuple[Silence, ...]
    steps: int
    pace: float
    prints: bool
    obeys: bool
    successor: bool  # whether the next run is really started, or only checked to be possible

    @property
    def healed_after(self) -> float:
        """Seconds after which every silence has healed, or has begun and never will."""
        ends = [s.after + (s.lasts if s.lasts < inf else 0.0) for s in self.silences]
        return max(ends, default=0.0)

    @property
    def heals(self) -> bool:
        return all(silence.lasts < inf for silence in self.silences)

    @property
    def speaks(self) -> bool:
        """Whether agent and server can reach one another in the end, if both run."""
        return all(s.lasts < inf or s.kind in STOPPED for s in self.silences)

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
        """Return the arguments of program.py."""
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


def _alone(kind: Kind) -> Silence:
    """Return a silence that never ends. A server is only stopped for three leases."""
    return Silence(kind, 0.5 * TIMING.lease, inf if kind is not Kind.SERVER else 3 * TIMING.lease)


_LATE = 0.9 * TIMING.stream_patience
PLAIN: tuple[tuple[Silence, ...], ...] = (
    *((_alone(kind),) for kind in Kind),
    (_alone(Kind.SUPERVISOR), _alone(Kind.HOLD)),  # each watcher alone must end the program in time
    (_alone(Kind.AGENT), _alone(Kind.HOLD)),
    (_alone(Kind.PROGRAM), _alone(Kind.HOLD)),
    # The last answer arrives late. The lease counts from the request.
    (Silence(Kind.HOLD_BACK, 1.0, _LATE), Silence(Kind.HOLD, 1.02 + _LATE, inf)),
)
"""What the first seeds show: everybody falls silent once, alone and for ever, around a program that ignores SIGTERM."""


def schedule(seed: int) -> Schedule:
    """Return the schedule of a seed, always the same."""
    return _plain(seed) if seed < len(PLAIN) else _random(seed)


def _plain(seed: int) -> Schedule:
    """Return a schedule of the table PLAIN, with a stubborn program that never ends."""
    return Schedule(
        seed, PLAIN[seed], 0, 0.05, prints=seed % 2 == 0, obeys=False, successor=seed % 4 == 0
    )


def _random(seed: int) -> Schedule:
    """Return a schedule of up to three random silences."""
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
    kind = random.choices(tuple(Kind), [_OFTEN.get(kind, 1) for kind in Kind])[0]
    lasts = random.uniform(shortest, longest) * TIMING.lease
    return Silence(kind, random.uniform(0.0, 1.5 * TIMING.lease), lasts)
