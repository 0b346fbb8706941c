"""Times, spans and levels as people read and write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from hai.task.levels import PRIORITIES

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from hai.v1.task_pb2 import Task

_NAMES = {number: name for name, number in PRIORITIES.items()}
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_LONGEST_DAYS = 20_000  # in seconds still what the contract has room for
_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")


_RANKS = re.compile(r"(\d{1,9})(?:-(\d{1,12}))?")
_MOST_RANKS = 10_000


def priority_name(number: int) -> str:
    """HIGH for 30; a number that is no level stays a number."""
    return _NAMES.get(number, str(number))


def span(seconds: float) -> str:
    """The two largest units: 42s, 3m20s, 5h, 2d4h."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in _UNITS.items():
        count, left = divmod(left, size)
        if count or (parts and len(parts) < 2):
            parts.append(f"{count}{unit}" if count else "")
        if len(parts) == 2:
            break
    return "".join(parts) or "0s"


def since(time: Timestamp, now: float) -> str:
    """How long ago a time was."""
    return span(now - time.seconds) if time.seconds else "-"


def held_seconds(task: Task, now: float) -> float:
    """How long its runs have held nodes, the one that runs now included."""
    run = task.run
    runs = run.start_time.seconds and not run.end_time.seconds
    return task.run_seconds + (max(0.0, now - run.start_time.seconds) if runs else 0.0)


def local(time: Timestamp) -> str:
    """A time in the user's zone, to the second."""
    if not time.seconds:
        return "-"
    past_time = datetime.fromtimestamp(time.seconds, tz=UTC).astimezone()
    return past_time.strftime("%Y-%m-%d %H:%M:%S")


def seconds(value: str) -> float:
    """Seconds in 90, 90s, 10m, 2h30m or 1d. Raises BadParameter."""
    match = _SPAN.fullmatch(value.strip())
    if not value.strip() or match is None:
        raise click.BadParameter(f"{value!r} is not a span of time; write 90, 10m, 2h30m or 1d")
    sizes = zip(match.groups(), _UNITS.values(), strict=True)
    total = sum(float(count) * size for count, size in sizes if count)
    if total > _LONGEST_DAYS * _UNITS["d"]:
        raise click.BadParameter(f"{value!r} is too long; the longest span is {_LONGEST_DAYS}d")
    return total


def past_time(value: str, now: float) -> datetime:
    """A point in time: 2026-11-21T11:08 or a span before now. Raises BadParameter."""
    try:
        return datetime.fromisoformat(value).astimezone()
    except ValueError:
        return datetime.fromtimestamp(now, tz=UTC) - timedelta(seconds=seconds(value))


class Span(click.ParamType[float]):
    """A span of time on the command line, in seconds."""

    name = "span"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        return value if isinstance(value, float) else seconds(str(value))


class Priority(click.ParamType[int]):
    """A level on the command line: its name or its number."""

    name = "priority"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The number."""
        upper_name = str(value).upper()
        number = PRIORITIES.get(upper_name.replace("-", "_"), _level(upper_name))
        if number is None:
            levels = ", ".join(f"{name} ({level})" for name, level in PRIORITIES.items())
            self.fail(f"{value!r} is not a priority; levels are {levels}", param, ctx)
        return number

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Names of levels."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(n) for n in PRIORITIES if n.startswith(incomplete.upper())]


def _level(value: str) -> int | None:
    return next((number for number in _NAMES if str(number) == value), None)


def deadline(value: str, now: float) -> datetime:
    """A point in time: 2026-11-21 or a span from now. Raises BadParameter."""
    try:
        return datetime.fromisoformat(value).astimezone()
    except ValueError:
        return datetime.fromtimestamp(now, tz=UTC) + timedelta(seconds=seconds(value))


def ranks(value: str) -> tuple[int, ...]:
    """Numbers in all (none), 0, 0-3 or 0-3,7. Raises BadParameter."""
    if value.strip() == "all":
        return ()
    found: set[int] = set()
    for part in value.split(","):
        found |= set(_range_of_ranks(part.strip()))
        if len(found) > _MOST_RANKS:
            raise click.BadParameter(_too_many(value))
    return tuple(sorted(found))


def _range_of_ranks(part: str) -> range:
    match = _RANKS.fullmatch(part)
    if match is None:
        raise click.BadParameter(f"{part!r} is no rank; write all, 0, 0-3 or 0-3,7")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise click.BadParameter(f"{part!r} ends before it begins; write {last}-{first}")
    if last - first >= _MOST_RANKS:
        raise click.BadParameter(_too_many(part))
    return range(first, last + 1)


def _too_many(value: str) -> str:
    return f"{value!r} is more than {_MOST_RANKS} ranks; write all, or fewer"
