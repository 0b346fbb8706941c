"""Reads the CSV format of HAI traces: a header, then one job per line.

If `user` or `priority` is empty, `user_synth` or `priority_synth` is used.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence

from hai_backend.domain.priority import Priority
from hai_backend.sim.traces.rows import (
    UNKNOWN_USER,
    ReadLog,
    Row,
    bad_trace,
    level,
    parse_count,
    parse_duration,
    parse_seconds,
    require_columns,
)

NODES = "nodes_8gpu"
"""Whole 8-GPU nodes of the job: the one column that tells what another one implies."""

_NEEDED = ("submit_s", "duration_s", "gpus")


def recognises(first_line: str) -> bool:
    """Return whether a file with this first line has this format."""
    return "submit_s" in (name.strip() for name in first_line.split(","))


def rows(lines: Sequence[str], log: ReadLog) -> list[Row]:
    """Return one row per job. Raises Invalid if the header lacks a column."""
    table = csv.reader(lines)
    found: list[Row] = []
    try:
        header = [name.strip() for name in next((line for line in table if line), [])]
        require_columns(log.source, table.line_num, header, _NEEDED)
        for cells in table:
            _add(found, table.line_num, header, cells, log)
    except csv.Error as error:
        raise bad_trace(f"{log.source}:{table.line_num}", f"not CSV: {error}") from error
    return found


def _add(
    found: list[Row], line: int, header: Sequence[str], cells: Sequence[str], log: ReadLog
) -> None:
    if not any(cell.strip() for cell in cells):
        return
    if len(cells) != len(header):
        log.wrong(
            line,
            "",
            f"{len(cells)} columns, the header has {len(header)}; quote cells that hold a comma",
        )
        return
    found.append(_row(line, dict(zip(header, map(str.strip, cells), strict=True)), log))


def _row(line: int, cell: Mapping[str, str], log: ReadLog) -> Row:
    column, text = _filled(cell, ("priority", "priority_synth"))
    return Row(
        line=line,
        name=cell.get("group_or_vc", ""),
        user=_filled(cell, ("user", "user_synth"))[1] or UNKNOWN_USER,
        submit=log.value(line, "submit_s", cell["submit_s"], parse_seconds, 0.0),
        duration=log.value(line, "duration_s", cell["duration_s"], parse_duration, 0.0),
        gpus=log.value(line, "gpus", cell["gpus"], parse_count, 0),
        nodes=log.value(line, NODES, cell[NODES], parse_count, None) if cell.get(NODES) else None,
        priority=log.value(line, column, text, level, Priority.NORMAL) if text else Priority.NORMAL,
    )


def _filled(cell: Mapping[str, str], columns: Iterable[str]) -> tuple[str, str]:
    """Return the first of the columns that is not empty, and its text."""
    return next(((name, cell[name]) for name in columns if cell.get(name)), ("", ""))
