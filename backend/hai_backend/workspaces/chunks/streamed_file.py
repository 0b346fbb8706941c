"""A large file that comes from its beginning on, as in a first push: hashed on its way to the disk, not read again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from blake3 import blake3

from hai_backend.workspaces.storage.direct_io import DirectIO


class Place(NamedTuple):
    """Where a chunk is wanted."""

    file: bytes
    place: int
    digest: bytes
    size: int


class StreamedFile:
    """A file that nobody else writes, as far as its chunks come one behind the other. `create` opens it."""

    def __init__(self, create: Callable[[], int]) -> None:
        self._create = create
        self._straight: DirectIO | None = None
        self._taken: deque[Place] = deque()  # not in the file yet
        self._written = 0
        self._hash = blake3()
        self.place = 0

    def take(self, wanted: Sequence[Place], contents: Mapping[bytes, memoryview]) -> list[Place]:
        """Take those that come next, of some by place; answers the rest. Raises OSError."""
        for number, each in enumerate(wanted):
            if each.place != self.place:
                return list(wanted[number:])
            self.add(contents[each.digest])
            self._taken.append(each)
        return []

    def add(self, content: memoryview) -> None:
        """These bytes come next. Raises OSError, also of what came before."""
        if self._straight is None:
            self._straight = DirectIO(self._create(), self.place)
        self._straight.add(content)
        self._written = self._straight.written
        self._hash.update(content)
        self.place += len(content)

    def skip(self, content: memoryview) -> None:
        """These bytes come next, and are in the file already. Raises OSError."""
        self.finish()
        self._hash.update(content)
        self.place += len(content)

    def written(self) -> list[Place]:
        """What has come to be in the file since the last question."""
        found = []
        while self._taken and self._taken[0].place + self._taken[0].size <= self._written:
            found.append(self._taken.popleft())
        return found

    def finish(self) -> None:
        """All that was taken is in the file; more may come."""
        if self._straight is not None:
            straight, self._straight = self._straight, None
            with closing(straight):
                straight.finish()
                self._written = straight.written

    def drop(self) -> None:
        """Nothing more is written, not even what was taken."""
        if self._straight is not None:
            straight, self._straight = self._straight, None
            straight.close()

    def is_whole(self, digest: bytes, size: int) -> bool:
        """Whether all of the file has come so, and is what it should be."""
        return self.place == size and self._hash.digest() == digest
