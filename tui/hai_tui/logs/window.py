"""The part of a log that is in memory: lines between two cursors, limited in bytes, growing at either end.

Lines that the window drops at one end can be read again from the cursor there. A progress bar (`redraw`) is replaced
by the next line of its rank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_BYTES = 4 * 1024 * 1024
_PART_BYTES = 64 * 1024
_LINE_BYTES = 120  # memory of a line without its text


class Line(NamedTuple):
    """A line of the log."""

    run: int
    rank: int
    time: float
    text: str
    redraw: bool = False


@dataclass(slots=True)
class _Part:
    """Lines between two cursors."""

    begin: str
    end: str
    lines: list[Line] = field(default_factory=list)
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of a step on the lines of the window, as counts. `replaced` has the indexes of changed lines."""

    before: int = 0  # lines added at the beginning
    after: int = 0  # lines added at the end
    dropped_before: int = 0  # lines dropped at the beginning
    dropped_after: int = 0
    replaced: tuple[int, ...] = ()

    def __add__(self, later: Change) -> Change:
        """Return the sum of two successive changes. Indexes are those after the later one."""
        moved = later.before - later.dropped_before
        return Change(
            self.before + later.before,
            self.after + later.after,
            self.dropped_before + later.dropped_before,
            self.dropped_after + later.dropped_after,
            tuple(i + moved for i in self.replaced if i + moved >= 0) + later.replaced,
        )


class Window:
    """The lines of a log between the cursors `begin` and `end`."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._parts: deque[_Part] = deque()
        # By run and rank: the part that has the progress bar, and its index there
        self._progress_bars: dict[tuple[int, int], tuple[_Part, int]] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return sum(len(part.lines) for part in self._parts)

    def __iter__(self) -> Iterator[Line]:
        return (line for part in self._parts for line in part.lines)

    def since(self, position: int) -> list[Line]:
        """Return the lines from that index on. The cost depends only on their number."""
        remaining, parts = len(self) - position, []
        for part in reversed(self._parts):
            if remaining <= 0:
                break
            parts.append(part.lines[-remaining:])
            remaining -= len(part.lines)
        return [line for lines in reversed(parts) for line in lines]

    @property
    def begin(self) -> str:
        """The cursor before the first line; empty if it is the first line of the log."""
        return self._parts[0].begin if self._parts else ""

    @property
    def end(self) -> str:
        """The cursor after the last line."""
        return self._parts[-1].end if self._parts else ""

    @property
    def full(self) -> bool:
        """True if the window must drop lines to take more."""
        return self.bytes >= self.max_bytes

    def clear(self) -> None:
        self._parts.clear()
        self._progress_bars.clear()
        self.bytes = 0

    def append(self, lines: Iterable[Line], end: str, begin: str | None = None) -> Change:
        """Add lines at the end. Excess lines are dropped at the beginning."""
        if not self._parts or self._parts[-1].bytes > _PART_BYTES:
            self._parts.append(_Part(self.end if begin is None else begin, end))
        part = self._parts[-1]
        part.end = end
        # `first` is the index of the part's first line, `old` the number of its lines before this call
        first, old = len(self) - len(part.lines), len(part.lines)
        replaced = [position for line in lines if (position := self._add(part, line)) is not None]
        after = len(part.lines) - old
        dropped = self._shrink(first=True)
        remaining = tuple(i - dropped for i in replaced if dropped <= i < first + old)
        return Change(after=after, dropped_before=dropped, replaced=remaining)

    def prepend(self, lines: Sequence[Line], begin: str) -> Change:
        """Add lines at the beginning. Excess lines are dropped at the end."""
        part = _Part(begin, self.begin, list(lines))
        part.bytes = sum(map(_size, part.lines))
        self._parts.appendleft(part)
        self.bytes += part.bytes
        return Change(before=len(part.lines), dropped_after=self._shrink(first=False))

    def _add(self, part: _Part, line: Line) -> int | None:
        """Add a line. Return the index of the progress bar that it replaced, or None."""
        key = (line.run, line.rank)
        bar = self._progress_bars.pop(key, None)
        bar_part, index = bar or (part, len(part.lines))
        size = _size(line)
        if bar is None:
            bar_part.lines.append(line)
        else:
            size -= _size(bar_part.lines[index])
            bar_part.lines[index] = line
        bar_part.bytes += size
        self.bytes += size
        if line.redraw:
            self._progress_bars[key] = (bar_part, index)
        return None if bar is None else self._lines_before(bar_part) + index

    def _lines_before(self, part: _Part) -> int:
        count = 0
        for each in self._parts:
            if each is part:
                break
            count += len(each.lines)
        return count

    def _shrink(self, *, first: bool) -> int:
        """Drop parts until the limit holds; at least one stays. Return the number of dropped lines."""
        dropped = 0
        while self.bytes > self.max_bytes and len(self._parts) > 1:
            part = self._parts.popleft() if first else self._parts.pop()
            self.bytes -= part.bytes
            dropped += len(part.lines)
            self._progress_bars = {
                k: bar for k, bar in self._progress_bars.items() if bar[0] is not part
            }
        return dropped


def _size(line: Line) -> int:
    return len(line.text) + _LINE_BYTES
