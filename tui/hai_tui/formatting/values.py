"""Reads and writes times, spans, priorities and ranks as people do."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from hai.task.levels import PRIORITIES

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from hai.v1.task_pb2 import Task

_PRIORITY_NAMES = {number: name for name, number in PRIORITIES.items()}
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_MAX_SPAN_DAYS = 20_000  # its seconds still fit the fields of the contract
_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")


_RANKS = re.compile(r"(\d{1,9})(?:-(\d{1,12}))?")
_MAX_RANKS = 10_000


def priority_name(number: int) -> str:
    """Return HIGH for 30. A number that is no level stays a number."""
    return _PRIORITY_NAMES.get(number, str(number))


def span(seconds: float) -> str:
    """Return the two largest units of a span, such as 42s, 3m20s, 5h or 2d4h."""
    remaining = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in _UNITS.items():
        count, remaining = divmod(remaining, size)
        if count or (parts and len(parts) < 2):
            parts.append(f"{count}{unit}" if count else "")
        if len(parts) == 2:
            break
    return "".join(parts) or "0s"


def since(time: Timestamp, now: float) -> str:
    """Return how long ago a time was."""
    return span(now - time.seconds) if time.seconds else "-"


def held_seconds(task: Task, now: float) -> float:
    """Return how long the runs of a task have held nodes, including the current run."""
    run = task.run
    is_running = run.start_time.seconds and not run.end_time.seconds
    return task.run_seconds + (max(0.0, now - run.start_time.seconds) if is_running else 0.0)


def local(time: Timestamp) -> str:
    """Return a time in the user's time zone, to the second."""
    if not time.seconds:
        return "-"
    return datetime.fromtimestamp(time.seconds, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def seconds(value: str) -> float:
    """Parse a span such as 90, 90s, 10m, 2h30m or 1d into seconds. Raise BadParameter."""
    match = _SPAN.fullmatch(value.strip())
    if not value.strip() or match is None:
        raise click.BadParameter(f"{value!r} is not a span of time; write 90, 10m, 2h30m or 1d")
    sizes = zip(match.groups(), _UNITS.values(), strict=True)
    total = sum(float(count) * size for count, size in sizes if count)
    if total > _MAX_SPAN_DAYS * _UNITS["d"]:
        raise click.BadParameter(f"{value!r} is too long; the longest span is {_MAX_SPAN_DAYS}d")
    return total


def past_time(value: str, now: float) -> datetime:
    """Parse 2026-11-21T11:08, or a span before now. Raise BadParameter."""
    try:
        return datetime.fromisoformat(value).astimezone()
    except ValueError:
        return datetime.fromtimestamp(now, tz=UTC) - timedelta(seconds=seconds(value))


class Span(click.ParamType[float]):
    """A span of time on the command line. Its value is in seconds."""

    name = "span"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        return value if isinstance(value, float) else seconds(str(value))


class Priority(click.ParamType[int]):
    """A priority on the command line: its name or its number."""

    name = "priority"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        upper_name = str(value).upper()
        number = PRIORITIES.get(upper_name.replace("-", "_"), _level(upper_name))
        if number is None:
            levels = ", ".join(f"{name} ({level})" for name, level in PRIORITIES.items())
            self.fail(f"{value!r} is not a priority; levels are {levels}", param, ctx)
        return number

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Offer the names of levels."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(n) for n in PRIORITIES if n.startswith(incomplete.upper())]


def _level(value: str) -> int | None:
    return next((number for number in _PRIORITY_NAMES if str(number) == value), None)


def deadline(value: str, now: float) -> datetime:
    """Parse 2026-11-21, or a span from now. Raise BadParameter."""
    try:
        return datetime.fromisoformat(value).astimezone()
    except ValueError:
        return datetime.fromtimestamp(now, tz=UTC) + timedelta(seconds=seconds(value))


def ranks(value: str) -> tuple[int, ...]:
    """Parse all, 0, 0-3 or 0-3,7. The result is empty for all. Raise BadParameter."""
    if value.strip() == "all":
        return ()
    found: set[int] = set()
    for part in value.split(","):
        found |= set(_range_of_ranks(part.strip()))
        if len(found) > _MAX_RANKS:
            raise click.BadParameter(_too_many(value))
    return tuple(sorted(found))


def _range_of_ranks(part: str) -> range:
    match = _RANKS.fullmatch(part)
    if match is None:
        raise click.BadParameter(f"{part!r} is not a rank; write all, 0, 0-3 or 0-3,7")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise click.BadParameter(f"{part!r} ends before it begins; write {last}-{first}")
    if last - first >= _MAX_RANKS:
        raise click.BadParameter(_too_many(part))
    return range(first, last + 1)


def _too_many(value: str) -> str:
    return f"{value!r} is more than {_MAX_RANKS} ranks; write all, or fewer"
