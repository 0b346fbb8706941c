"""Replays a log of scheduling passes (scheduler/recorded_input.py) and compares each decision with the recorded one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from hai_backend.domain.json_form import invalid_value, to_json
from hai_backend.scheduler import SchedulerCache
from hai_backend.scheduler.recorded_input import Begin, Pass, apply, parse_line
from hai_backend.sim.replay.job import Progress


@dataclass(frozen=True, slots=True)
class Difference:
    """A pass whose replayed plan differs from the recorded plan, both in their JSON form."""

    position: str
    now: float
    recorded: Any
    replayed: Any

    def lines(self) -> Iterator[str]:
        """Yield the decisions that differ between the plans."""
        yield f"{self.position}: the pass at {self.now!r} decides otherwise"
        pairs = zip_longest(
            _decision_texts(self.recorded), _decision_texts(self.replayed), fillvalue="nothing"
        )
        for before, after in pairs:
            if before != after:
                yield f"  recorded: {before}"
                yield f"  replayed: {after}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of verifying one log."""

    source: str
    beginnings: int
    passes: int
    decisions: int
    torn: bool  # whether the last line is incomplete and was skipped
    releases: tuple[str, ...]  # versions of the software that wrote the log
    difference: Difference | None = None


def verify(path: str, progress: Progress = lambda done, total, now: None) -> Verdict:
    """Replay a log until its end or until the first different pass. Raises Invalid if it is not a log, and OSError."""
    replay, total = _Replay(path), Path(path).stat().st_size
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                replay.torn = True
                break
            replay.line(f"{path}:{number}", line)
            if replay.difference is not None:
                break
            progress(min(file.tell(), total), total, replay.seconds)
    return replay.verdict()


def format_verdict(verdict: Verdict) -> Iterator[str]:
    """Yield the verdict as lines of text."""
    counted = f"{verdict.passes} passes and {verdict.decisions} decisions compared"
    if verdict.difference is None:
        yield f"{verdict.source}: {counted}, all as recorded"
    else:
        yield f"{verdict.source}: {counted}, the last pass differs"
        yield from verdict.difference.lines()
    if verdict.torn:
        yield f"{verdict.source}: its last line is not complete and was left out"
    releases = [release for release in verdict.releases if release]
    if releases and verdict.difference is not None:
        yield f"{verdict.source}: it was recorded by version {', '.join(releases)}"


def verdicts_to_json(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the verdicts as one JSON object."""
    return {
        "equal": all(verdict.difference is None for verdict in verdicts),
        "logs": [asdict(verdict) for verdict in verdicts],
    }


class _Replay:
    """The replay of one log."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.torn = False
        self.difference: Difference | None = None
        self.seconds = 0.0  # from the first to the last pass
        self._began: float | None = None
        self._cache: SchedulerCache | None = None
        self._beginnings = self._passes = self._decisions = 0
        self._releases: dict[str, None] = {}

    def line(self, position: str, line: bytes) -> None:
        found = parse_line(_text(line, position), position)
        if isinstance(found, Begin):
            self._cache = found.cache()
            self._beginnings += 1
            self._releases[found.release] = None
        elif self._cache is None:
            raise invalid_value(position, "comes before the beginning of a log")
        else:
            self._compare(position, self._cache, found)

    def _compare(self, position: str, cache: SchedulerCache, recorded: Pass) -> None:
        self._passes += 1
        self._began = recorded.shown.now if self._began is None else self._began
        self.seconds = recorded.shown.now - self._began
        self._decisions += len(recorded.plan.decisions)
        now, before = recorded.shown.now, to_json(recorded.plan)
        after = to_json(apply(cache, recorded.shown))
        if json.dumps(before) != json.dumps(after):
            self.difference = Difference(position, now, before, after)

    def verdict(self) -> Verdict:
        if not self._beginnings:
            raise invalid_value(
                self.source, "holds no beginning of a log, so nothing can be replayed"
            )
        return Verdict(
            self.source, self._beginnings, self._passes, self._decisions, self.torn,
            tuple(self._releases), self.difference,
        )  # fmt: skip


def _text(line: bytes, position: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise invalid_value(position, "is not text in UTF-8") from error


def _decision_texts(plan: dict[str, Any]) -> Iterator[str]:
    """Yield each decision as JSON, then the other fields of the plan."""
    yield from (json.dumps(decision, ensure_ascii=False) for decision in plan["decisions"])
    yield json.dumps({name: value for name, value in plan.items() if name != "decisions"})
