"""Faults between a client and the server: rules that a test sets, and a seeded schedule of everything at once.

    cluster.faults.add(Answer(503), verb="create", resource="pods", nth=2)
    cluster.faults.add(Close(after=True), verb="create", probability=0.1)
    cluster.faults.seed(17, rate=0.05)

A draw depends on the seed, the verb, the object and how often that was asked before, never on the order in which
requests for different objects happen to arrive: the same seed harms the same requests.
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
    """Refuse with this code and carry nothing out."""

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
    """Break the connection: before the request is carried out, or after."""

    after: bool = False


@dataclass(frozen=True, slots=True)
class Delay:
    """Carry it out late, by the cluster's timers."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Truncate:
    """Carry it out, but break the connection in the middle of the answer."""


Fault = Answer | Close | Delay | Truncate
Injection = tuple[str, str, str, Fault]  # verb, resource, name
_CODES = (409, 429, 500, 502, 503, 504)


@dataclass(slots=True)
class Rule:
    """Which requests meet a fault. Empty means any; `name` is a pattern."""

    fault: Fault
    verb: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = "*"
    subresource: str | None = None
    nth: int = 0  # only the n-th that matches, counted from 1
    times: int = 0  # only the first so many
    probability: float = 1.0
    match_count: int = 0

    def applies_to(self, call: RequestInfo, chance: float) -> bool:
        if not self._matches(call):
            return False
        self.match_count += 1
        if (self.nth and self.match_count != self.nth) or (
            self.times and self.match_count > self.times
        ):
            return False
        return chance < self.probability

    def _matches(self, call: RequestInfo) -> bool:
        return (
            self.verb in ("", call.verb)
            and self.resource in ("", call.resource.plural)
            and self.namespace in ("", call.namespace)
            and self.subresource in (None, call.subresource)
            and fnmatchcase(call.name, self.name)
        )


class Faults:
    """Decides what befalls each request. The first rule that strikes wins."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._seed: int | None = None
        self._rate = 0.0
        self._request_counts: Counter[tuple[str, ...]] = Counter()
        self.injected: deque[Injection] = deque(maxlen=10_000)  # the newest

    def add(self, fault: Fault, **which: object) -> Rule:
        """A rule with the fields of Rule; answered so that it can be removed."""
        rule = Rule(fault, **which)  # type: ignore[arg-type]
        self._rules.append(rule)
        return rule

    def remove(self, rule: Rule) -> None:
        self._rules.remove(rule)

    def seed(self, seed: int, rate: float) -> None:
        """Let every request meet some fault with this probability, by a schedule that the seed settles."""
        self._seed, self._rate = seed, rate

    def clear(self) -> None:
        """From now on all is well."""
        self._rules.clear()
        self._seed = None

    def decide(self, call: RequestInfo) -> Fault | None:
        """What befalls this request."""
        if not self._rules and self._seed is None:
            return None
        draws = self._draws(call)
        found = next((r.fault for r in self._rules if r.applies_to(call, next(draws))), None)
        if found is None and self._seed is not None and next(draws) < self._rate:
            found = _random_fault(Random(next(draws)))
        if found is not None:
            self.injected.append((call.verb, call.resource.plural, call.name, found))
        return found

    def _draws(self, call: RequestInfo) -> Iterator[float]:
        key = (call.verb, call.resource.plural, call.namespace, call.name, call.subresource)
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
