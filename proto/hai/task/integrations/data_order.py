"""Saves the order of the samples of a plain DataLoader, so that a resumed epoch continues with the next sample.

A sampler draws the order of an epoch at its first iteration. `keep_order` lets a loader record the state of all random
generators at that time. `DataOrder.state` returns the data that a checkpoint must contain. After `DataOrder.resume`,
the loader draws the same order again, and skips the batches that were trained without loading them. A checksum of the
skipped batches is compared with that of the trained ones, to detect an order that cannot be repeated.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from hai.task.integrations.torch import get_generators, set_generators

_OURS = "_hai_order"


class DataOrder:
    """The order of one loader. `warn` is called with a message if the order cannot be repeated."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        # states of the generators before the order of this epoch was drawn
        self._begun: dict[str, Any] | None = None
        # number of batches, and a checksum of these batches
        self._drawn: deque[tuple[int, int]] = deque()
        self._resumed: dict[str, Any] | None = None

    def set_trained(self, count: int) -> None:
        """Record that `count` batches of the epoch were trained."""
        while self._drawn and self._drawn[0][0] < count:
            self._drawn.popleft()

    def finish_epoch(self) -> None:
        """Record that the epoch has ended."""
        self._begun = None

    def state(self) -> dict[str, Any] | None:
        """Return the state for a checkpoint; None if no epoch has begun."""
        if self._begun is None or not self._drawn:
            return None
        trained, checksum = self._drawn[0]
        return {**self._begun, "trained": trained, "checksum": checksum}

    def resume(self, state: dict[str, Any] | None) -> None:
        """Let the next epoch continue the epoch of this state. None begins a new epoch."""
        self._resumed = state

    def batches(self, loader: DataLoader[Any], sampler: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of indices that remain in an epoch."""
        state, self._resumed = self._resumed, None
        if state is not None:
            remaining = self._skipped(loader, sampler, state)
            if remaining is not None:
                yield from remaining
                return
        states = [generator.get_state() for generator in _generators(loader)]
        self._begun = {"generators": get_generators(), "own": states, "epoch": _epoch(loader)}
        yield from self._counted(iter(sampler), 0, 0)

    def _skipped(
        self, loader: DataLoader[Any], sampler: Iterable[Any], state: dict[str, Any]
    ) -> Iterator[Any] | None:
        """Draw the order again, and return the batches that were not trained; None if there are none."""
        self._begun = {key: state[key] for key in ("generators", "own", "epoch")}
        now, trained, checksum = get_generators(), int(state["trained"]), 0
        _set_generator_states(loader, state)
        set_generators(state["generators"])
        batches = iter(sampler)
        for batch in islice(batches, trained):
            checksum = _checksum(batch, checksum)
        first = next(batches, None)  # if no batch was skipped, this draws the order
        set_generators(now)
        if checksum != state["checksum"]:
            self._warn(
                "the training data or their order are not those of the run before: some samples of this epoch may be"
                " seen twice, others never. Keep the data set, the batch size and the number of ranks, and use a"
                " sampler that draws its order when it is iterated"
            )
        return None if first is None else self._counted(chain([first], batches), trained, checksum)

    def _counted(self, batches: Iterator[Any], number: int, checksum: int) -> Iterator[Any]:
        self._drawn = deque([(number, checksum)])
        for batch in batches:
            number, checksum = number + 1, _checksum(batch, checksum)
            self._drawn.append((number, checksum))
            yield batch


def _checksum(batch: Any, before: int) -> int:
    return zlib.crc32(repr(batch).encode(), before)


def keep_order(loader: object, order: DataOrder) -> str:
    """Let a loader record its order. Return the reason if this is not possible, else an empty string."""
    if _OURS not in getattr(loader, "__dict__", {}) and hasattr(loader, "load_state_dict"):
        return ""  # it saves its own position in Lightning's checkpoint
    if not isinstance(loader, DataLoader):
        return f"the training data come from a {type(loader).__name__}, whose position is not known"
    if isinstance(loader.dataset, IterableDataset):
        return f"{type(loader.dataset).__name__} is an IterableDataset, whose position is not known"
    if _OURS not in vars(loader):
        loader.__class__ = _resumable(type(loader))
    vars(loader)[_OURS] = order
    return ""


def _resumable(kind: type[DataLoader[Any]]) -> type[DataLoader[Any]]:
    """Return a subclass whose batches of indices pass through a DataOrder.

    It has state_dict and load_state_dict, so that Lightning treats it as resumable.
    """

    def index_sampler(self: Any) -> _Batches:
        return _Batches(self, super(type(self), self)._index_sampler, vars(self)[_OURS])

    def state_dict(self: Any) -> dict[str, Any]:
        return {}

    def load_state_dict(self: Any, state: dict[str, Any]) -> None:
        return None

    names = {
        "_index_sampler": property(index_sampler),
        "state_dict": state_dict,
        "load_state_dict": load_state_dict,
    }
    return type(kind.__name__, (kind,), names)


class _Batches:
    """The index sampler of a DataLoader whose order is recorded."""

    def __init__(self, loader: DataLoader[Any], sampler: Any, order: DataOrder) -> None:
        self._loader, self._sampler, self._order = loader, sampler, order

    def __iter__(self) -> Iterator[Any]:
        return self._order.batches(self._loader, self._sampler)

    def __len__(self) -> int:
        return len(self._sampler)


def _samplers(loader: DataLoader[Any]) -> list[Any]:
    """Return all objects that may draw random numbers: the loader, its sampler, and its batch sampler with its own."""
    inner = getattr(loader.batch_sampler, "sampler", None)
    found = [loader, loader.sampler, loader.batch_sampler, inner]
    return [each for i, each in enumerate(found) if each is not None and each not in found[:i]]


def _generators(loader: DataLoader[Any]) -> list[torch.Generator]:
    found = [getattr(each, "generator", None) for each in _samplers(loader)]
    return [each for each in found if isinstance(each, torch.Generator)]


def _epoch(loader: DataLoader[Any]) -> int:
    """Return the epoch of a DistributedSampler, which determines its order; 0 if there is none."""
    return max((int(getattr(each, "epoch", 0)) for each in _samplers(loader)), default=0)


def _set_generator_states(loader: DataLoader[Any], state: dict[str, Any]) -> None:
    for generator, saved in zip(_generators(loader), state["own"], strict=False):
        generator.set_state(saved)
    for each in _samplers(loader):
        if hasattr(each, "set_epoch"):
            each.set_epoch(state["epoch"])
