"""Injects faults between client and server, by rules that a test adds, or at random with a seed.

    cluster.faults.add(Answer(503), verb="create", resource="pods", nth=2)
    cluster.faults.add(Close(after=True), verb="create", probability=0.1)
    cluster.faults.seed(17, rate=0.05)

Each random number depends on the seed, the verb, the object and the number of such requests before. It does not depend
on the order in which requests for different objects arrive. So the same seed affects the same requests.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random

from hai_backend.testing.kube.errors import ApiError, too_many
from hai_backend.testing.kube.request_info import RequestInfo


@dataclass(frozen=True, slots=True)
class Answer:
    """The server answers with an error, and does not execute the request."""

    code: int
    retry_after: int = 1
    reason: str | None = None

    def error(self) -> ApiError:
        if self.code == 429:
            return too_many("too many requests, please try again later", seconds=self.retry_after)
        seconds = {"retryAfterSeconds": self.retry_after} if self.code in (503, 504) else None
        return ApiError(self.code, f"injected fault {self.code}", seconds, self.reason)


@dataclass(frozen=True, slots=True)
class Close:
    """The server breaks the connection before or after it executes the request."""

    after: bool = False


@dataclass(frozen=True, slots=True)
class Delay:
    """The server executes the request later, by the timers of the cluster."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Truncate:
    """The server executes the request, but breaks the connection in the middle of the response."""


Fault = Answer | Close | Delay | Truncate
Injection = tuple[str, str, str, Fault]  # verb, resource, name
_CODES = (409, 429, 500, 502, 503, 504)


@dataclass(slots=True)
class Rule:
    """A fault, and the requests that get it. An empty field matches any request; `name` is a pattern."""

    fault: Fault
    verb: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = "*"
    subresource: str | None = None
    nth: int = 0  # only the n-th matching request, counted from 1
    times: int = 0  # only the first `times` matching requests
    probability: float = 1.0
    match_count: int = 0

    def applies_to(self, info: RequestInfo, chance: float) -> bool:
        if not self._matches(info):
            return False
        self.match_count += 1
        if (self.nth and self.match_count != self.nth) or (
            self.times and self.match_count > self.times
        ):
            return False
        return chance < self.probability

    def _matches(self, info: RequestInfo) -> bool:
        return (
            self.verb in ("", info.verb)
            and self.resource in ("", info.resource.plural)
            and self.namespace in ("", info.namespace)
            and self.subresource in (None, info.subresource)
            and fnmatchcase(info.name, self.name)
        )


class Faults:
    """Decides which fault each request gets. The first applicable rule is used."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._seed: int | None = None
        self._rate = 0.0
        self._request_counts: Counter[tuple[str, ...]] = Counter()
        self.injected: deque[Injection] = deque(maxlen=10_000)  # the newest

    def add(self, fault: Fault, **fields: object) -> Rule:
        """Add a rule with these fields, and return it for `remove`."""
        rule = Rule(fault, **fields)  # type: ignore[arg-type]
        self._rules.append(rule)
        return rule

    def remove(self, rule: Rule) -> None:
        self._rules.remove(rule)

    def seed(self, seed: int, rate: float) -> None:
        """Inject random faults with probability `rate`. The seed determines them."""
        self._seed, self._rate = seed, rate

    def clear(self) -> None:
        """Inject no more faults."""
        self._rules.clear()
        self._seed = None

    def decide(self, info: RequestInfo) -> Fault | None:
        """Return the fault of a request; None if it has none."""
        if not self._rules and self._seed is None:
            return None
        draws = self._draws(info)
        fault = next((r.fault for r in self._rules if r.applies_to(info, next(draws))), None)
        if fault is None and self._seed is not None and next(draws) < self._rate:
            fault = _random_fault(Random(next(draws)))
        if fault is not None:
            self.injected.append((info.verb, info.resource.plural, info.name, fault))
        return fault

    def _draws(self, info: RequestInfo) -> Iterator[float]:
        key = (info.verb, info.resource.plural, info.namespace, info.name, info.subresource)
        self._request_counts[key] += 1
        random = Random(f"{self._seed or 0} {key} {self._request_counts[key]}")
        return (random.random() for _ in itertools.count())


def _random_fault(random: Random) -> Fault:
    choices: list[Fault] = [
        Answer(random.choice(_CODES)),
        Close(),
        Close(after=True),
        Truncate(),
        Delay(random.uniform(0.0, 0.05)),
    ]
    return random.choice(choices)
