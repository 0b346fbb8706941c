"""Compares replays in a table: one line per figure, one column per replay. The best values are marked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hai_backend.domain.priority import LEVELS
from hai_backend.sim.report.results import Result

_GAP = 3  # blanks between columns; rich uses as many


@dataclass(frozen=True, slots=True)
class Line:
    """One figure: its title and format, and whether more (1), less (-1) or neither (0) is better."""

    key: str
    title: str
    form: str
    better: int = 0
    factor: float = 1.0


LINES = (
    Line("nodes", "nodes", "{:.0f}"),
    Line("jobs", "jobs", "{:.0f}"),
    Line("jct_mean_h", "JCT mean, h", "{:.2f}", -1),
    Line("jct_p50_h", "JCT p50, h", "{:.2f}", -1),
    Line("jct_p95_h", "JCT p95, h", "{:.2f}", -1),
    Line("jct_p99_h", "JCT p99, h", "{:.2f}", -1),
    Line("wait_mean_h", "wait mean, h", "{:.2f}", -1),
    Line("wait_p50_h", "wait p50, h", "{:.2f}", -1),
    Line("wait_p95_h", "wait p95, h", "{:.2f}", -1),
    Line("wait_p99_h", "wait p99, h", "{:.2f}", -1),
    Line("first_wait_mean_h", "wait for the first start, h", "{:.2f}", -1),
    Line("slowdown_mean", "bounded slowdown, mean", "{:.1f}", -1),
    Line("occupancy", "occupancy, %", "{:.1f}", 1, 100),
    Line("saturation", "saturation, %", "{:.2f}", 1, 100),
    Line("useful_share", "useful share, %", "{:.2f}", 1, 100),
    Line("lost_node_hours", "lost node-hours", "{:.1f}", -1),
    Line("suspensions_per_job", "suspensions per job", "{:.2f}", -1),
    Line("suspensions_max", "suspensions of a job, most", "{:.0f}", -1),
    Line("jain", "Jain index of users", "{:.3f}", 1),
    Line("makespan_h", "makespan, h", "{:.1f}", -1),
    Line("pass_p50_ms", "pass p50, ms", "{:.2f}", -1),
    Line("pass_p99_ms", "pass p99, ms", "{:.2f}", -1),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One table row. `best` are the columns with the best value; it is empty if all values are equal."""

    title: str
    cells: tuple[str, ...]
    best: frozenset[int]


def rows(results: Sequence[Result]) -> list[Row]:
    """Return the rows of all figures, and below them the mean wait of each priority level."""
    found = [_row(line, [r.number(line.key) for r in results], results) for line in LINES]
    return found + _levels(results)


def show(results: Sequence[Result], out: TextIO) -> None:
    """Print the table, on a terminal with colours and folded to the width, otherwise as plain text."""
    if not out.isatty():
        out.write(plain(results))
        return
    console = Console(file=out)
    for block in _blocks(results, console.width):
        console.print(_rich(results, block))


def plain(results: Sequence[Result]) -> str:
    """Return the table as aligned lines. A star marks the best values of a line."""
    table = [("", *(result.label for result in results))]
    for row in rows(results):
        marked = (f"{cell}{'*' if i in row.best else ' '}" for i, cell in enumerate(row.cells))
        table.append((row.title, *(marked if len(results) > 1 else row.cells)))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "".join(_aligned(line, widths) for line in table)


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    title, *cells = (
        text.rjust(width) if i else text.ljust(width)
        for i, (text, width) in enumerate(zip(line, widths, strict=True))
    )
    return (" " * _GAP).join((title, *cells)).rstrip() + "\n"


def _blocks(results: Sequence[Result], width: int) -> Iterator[range]:
    """Yield ranges of columns that fit beside one another, at least one column each."""
    titles = max(len(line.title) for line in LINES)
    used_width, start = 0, 0
    for i, result in enumerate(results):
        column_width = max(8, len(result.label)) + _GAP
        if i > start and titles + used_width + column_width > width:
            yield range(start, i)
            start, used_width = i, 0
        used_width += column_width
    yield range(start, len(results))


def _rich(results: Sequence[Result], columns: range) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for i in columns:
        table.add_column(Text(results[i].label), justify="right", overflow="fold")
    for row in rows(results):
        cells = (Text(row.cells[i], "bold green" if i in row.best else "") for i in columns)
        table.add_row(row.title, *cells)
    return table


def _row(line: Line, values: Sequence[float], results: Sequence[Result]) -> Row:
    cells = tuple(line.form.format(value * line.factor) for value in values)
    return Row(line.title, cells, _best(cells, values, line.better, results))


def _best(
    cells: Sequence[str], values: Sequence[float], better: int, results: Sequence[Result]
) -> frozenset[int]:
    """Return the columns with the best value among the replays of one trace. Equal texts count as equal."""
    found: set[int] = set()
    for trace in {result.trace for result in results} if better else ():
        rivals = [
            i for i, r in enumerate(results) if r.trace == trace and not math.isnan(values[i])
        ]
        winner = cells[max(rivals, key=lambda i: better * values[i])] if rivals else ""
        if any(cells[i] != winner for i in rivals):
            found |= {i for i in rivals if cells[i] == winner}
    return frozenset(found)


def _levels(results: Sequence[Result]) -> list[Row]:
    waits = [_waits(result) for result in results]
    present = {name for wait in waits for name in wait}
    names = [level.name for level in LEVELS if level.name in present]
    if len(names) < 2:
        return []
    return [_level(name, [wait.get(name, math.nan) for wait in waits], results) for name in names]


def _level(name: str, values: Sequence[float], results: Sequence[Result]) -> Row:
    cells = tuple("-" if math.isnan(value) else f"{value:.2f}" for value in values)
    return Row(f"wait mean of {name}, h", cells, _best(cells, values, -1, results))


def _waits(result: Result) -> dict[str, float]:
    found = result.figures["wait_by_priority_h"]
    assert isinstance(found, dict)
    return found
