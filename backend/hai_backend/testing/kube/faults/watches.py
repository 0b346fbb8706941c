"""Injects faults into watch streams, either into those that are open now, or into all later events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from weakref import WeakKeyDictionary

from hai_backend.testing.kube.watch import Lines, Watch


class WatchFaults:
    """Faults of watch streams. If `plural` is empty, the streams of all kinds are affected."""

    def __init__(self, watches: Callable[[], Iterable[Watch]]) -> None:
        self._watches = watches
        self._seed: int | None = None
        self._duplicate = self._reorder = self._drop = 0.0
        self._draws: WeakKeyDictionary[Watch, Random] = WeakKeyDictionary()
        self._opened_count: Counter[tuple[str, str]] = Counter()

    def end(self, plural: str = "") -> int:
        """End streams without an error. Return the number of streams."""
        return self._apply_to(plural, Watch.end)

    def freeze(self, plural: str = "") -> int:
        """Stop the events of streams, but do not close the streams, as if packets were dropped. Return their number."""
        return self._apply_to(plural, lambda watch: setattr(watch, "frozen", True))

    def thaw(self, plural: str = "") -> int:
        """Let frozen streams continue with the events that are still in the window. Return their number."""

        def resume(watch: Watch) -> None:
            watch.frozen = False
            watch.wake()

        return self._apply_to(plural, resume)

    def disturb(
        self, seed: int = 0, duplicate: float = 0.0, reorder: float = 0.0, drop: float = 0.0
    ) -> None:
        """Duplicate events, swap them with the previous event, or end the stream before them, with these probabilities.

        Each stream has its own random numbers. With the same seed, the n-th stream of a kind and namespace gets the
        same faults, except for swaps, because only events of one batch can be swapped.
        """
        self._seed = seed
        self._duplicate, self._reorder, self._drop = duplicate, reorder, drop
        self._draws.clear()
        self._opened_count.clear()

    def stop_disturbing(self) -> None:
        self._seed = None

    def apply(self, watch: Watch, lines: Lines) -> Lines:
        """Return the lines that a stream sends instead of `lines`."""
        if self._seed is None:
            return lines
        random, changed = self._random(watch), Lines()
        for line in lines:
            duplicate_draw, swap_draw, drop = (random.random() for _ in range(3))
            if drop < self._drop:
                watch.end()
                return changed
            changed.extend([line] * (2 if duplicate_draw < self._duplicate else 1))
            if swap_draw < self._reorder and len(changed) > 1:
                changed[-2], changed[-1] = changed[-1], changed[-2]
        return changed

    def _random(self, watch: Watch) -> Random:
        if watch not in self._draws:
            kind = watch.options.resource.plural, watch.options.namespace
            self._opened_count[kind] += 1
            self._draws[watch] = Random(f"{self._seed} {kind} {self._opened_count[kind]}")
        return self._draws[watch]

    def _apply_to(self, plural: str, act: Callable[[Watch], None]) -> int:
        selected = [w for w in self._watches() if plural in ("", w.options.resource.plural)]
        for watch in selected:
            act(watch)
        return len(selected)
