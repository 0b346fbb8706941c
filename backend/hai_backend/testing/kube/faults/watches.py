"""What befalls streams: all that are open now, or those that open from now on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from weakref import WeakKeyDictionary

from hai_backend.testing.kube.watch import Lines, Watch


class WatchFaults:
    """`plural` chooses the kind; without it, all streams."""

    def __init__(self, watches: Callable[[], Iterable[Watch]]) -> None:
        self._watches = watches
        self._seed: int | None = None
        self._duplicate = self._reorder = self._drop = 0.0
        self._draws: WeakKeyDictionary[Watch, Random] = WeakKeyDictionary()
        self._opened: Counter[tuple[str, str]] = Counter()

    def end(self, plural: str = "") -> int:
        """End them without an error; answers how many."""
        return self._each(plural, Watch.end)

    def freeze(self, plural: str = "") -> int:
        """They stay open and say nothing more, as behind a firewall that has forgotten the connection."""
        return self._each(plural, lambda watch: setattr(watch, "frozen", True))

    def thaw(self, plural: str = "") -> int:
        """What was kept back comes now, as far as the window still holds it."""

        def free(watch: Watch) -> None:
            watch.frozen = False
            watch.wake()

        return self._each(plural, free)

    def disturb(
        self, seed: int = 0, duplicate: float = 0.0, reorder: float = 0.0, drop: float = 0.0
    ) -> None:
        """Streams say an event twice, swap it with the one before, or end silently before it, with these probabilities.

        Each stream has draws of its own: the n-th of a kind and namespace meets the same with the same seed, but for
        swaps, since only what travels together can be swapped.
        """
        self._seed = seed
        self._duplicate, self._reorder, self._drop = duplicate, reorder, drop
        self._draws.clear()
        self._opened.clear()

    def calm(self) -> None:
        self._seed = None

    def apply(self, watch: Watch, lines: Lines) -> Lines:
        """What a stream says instead of these lines."""
        if self._seed is None:
            return lines
        random, made = self._random(watch), Lines()
        for line in lines:
            twice, swap, drop = (random.random() for _ in range(3))
            if drop < self._drop:
                watch.end()
                return made
            made.extend([line] * (2 if twice < self._duplicate else 1))
            if swap < self._reorder and len(made) > 1:
                made[-2], made[-1] = made[-1], made[-2]
        return made

    def _random(self, watch: Watch) -> Random:
        if watch not in self._draws:
            kind = watch.asked.resource.plural, watch.asked.namespace
            self._opened[kind] += 1
            self._draws[watch] = Random(f"{self._seed} {kind} {self._opened[kind]}")
        return self._draws[watch]

    def _each(self, plural: str, act: Callable[[Watch], None]) -> int:
        found = [w for w in self._watches() if plural in ("", w.asked.resource.plural)]
        for watch in found:
            act(watch)
        return len(found)
