"""The part of a log that is in memory: lines between two cursors, limited in bytes, growing at either end.

Lines that the window drops at one end can be read again by the cursor there. The current state of a progress bar is
no line of the log: the next line of its rank replaces it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MOST_BYTES = 4 * 1024 * 1024
_PART_BYTES = 64 * 1024
_LINE_BYTES = 120  # what a line costs beside its text


class Line(NamedTuple):
    """One line as the server tells it."""

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
    """What a step did to the lines of the window, counted; `replaced` are places of lines that look otherwise now."""

    before: int = 0  # lines that came before the first one
    after: int = 0
    dropped_before: int = 0  # lines that left at the beginning
    dropped_after: int = 0
    replaced: tuple[int, ...] = ()

    def __add__(self, later: Change) -> Change:
        """Both, one after the other; places are those of the end."""
        moved = later.before - later.dropped_before
        return Change(
            self.before + later.before,
            self.after + later.after,
            self.dropped_before + later.dropped_before,
            self.dropped_after + later.dropped_after,
            tuple(i + moved for i in self.replaced if i + moved >= 0) + later.replaced,
        )


class Window:
    """Lines of a log between `begin` and `end`."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._parts: deque[_Part] = deque()
        self._bars: dict[tuple[int, int], tuple[_Part, int]] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return sum(len(part.lines) for part in self._parts)

    def __iter__(self) -> Iterator[Line]:
        return (line for part in self._parts for line in part.lines)

    def since(self, position: int) -> list[Line]:
        """The lines from that place on; costs as much as there are of them."""
        left, parts = len(self) - position, []
        for part in reversed(self._parts):
            if left <= 0:
                break
            parts.append(part.lines[-left:])
            left -= len(part.lines)
        return [line for lines in reversed(parts) for line in lines]

    @property
    def begin(self) -> str:
        """The cursor before the first line; empty: nothing is before it."""
        return self._parts[0].begin if self._parts else ""

    @property
    def end(self) -> str:
        """The cursor after the last line."""
        return self._parts[-1].end if self._parts else ""

    @property
    def full(self) -> bool:
        """True when the next lines push out others."""
        return self.bytes >= self.most_bytes

    def clear(self) -> None:
        """Hold nothing."""
        self._parts.clear()
        self._bars.clear()
        self.bytes = 0

    def append(self, lines: Iterable[Line], end: str, begin: str | None = None) -> Change:
        """Lines after the last one; what is too much leaves at the beginning."""
        if not self._parts or self._parts[-1].bytes > _PART_BYTES:
            self._parts.append(_Part(self.end if begin is None else begin, end))
        part = self._parts[-1]
        part.end = end
        first, old = len(self) - len(part.lines), len(part.lines)
        replaced = [position for line in lines if (position := self._add(part, line)) is not None]
        after = len(part.lines) - old
        dropped = self._shrink(first=True)
        still_there = tuple(i - dropped for i in replaced if dropped <= i < first + old)
        return Change(after=after, dropped_before=dropped, replaced=still_there)

    def prepend(self, lines: Sequence[Line], begin: str) -> Change:
        """Lines before the first one; what is too much leaves at the end."""
        part = _Part(begin, self.begin, list(lines))
        part.bytes = sum(map(_size, part.lines))
        self._parts.appendleft(part)
        self.bytes += part.bytes
        return Change(before=len(part.lines), dropped_after=self._shrink(first=False))

    def _add(self, part: _Part, line: Line) -> int | None:
        """The place of the bar that the line has replaced; None when it stands at the end."""
        key = (line.run, line.rank)
        bar = self._bars.pop(key, None)
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
            self._bars[key] = (bar_part, index)
        return None if bar is None else self._before(bar_part) + index

    def _before(self, search_pattern: _Part) -> int:
        count = 0
        for part in self._parts:
            if part is search_pattern:
                break
            count += len(part.lines)
        return count

    def _shrink(self, *, first: bool) -> int:
        """How many lines have left. One part always stays."""
        dropped = 0
        while self.bytes > self.most_bytes and len(self._parts) > 1:
            part = self._parts.popleft() if first else self._parts.pop()
            self.bytes -= part.bytes
            dropped += len(part.lines)
            self._bars = {k: bar for k, bar in self._bars.items() if bar[0] is not part}
        return dropped


def _size(line: Line) -> int:
    return len(line.text) + _LINE_BYTES
