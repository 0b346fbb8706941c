"""Reads the Standard Workload Format of the Parallel Workloads Archive: 18 numbers per line; comments begin with `;`.

The format has no GPUs: one processor counts as one GPU, so --gpus-per-node is the number of processors of a node.
"""

from __future__ import annotations

from collections.abc import Sequence

from hai_backend.sim.traces.rows import UNKNOWN_USER, ReadLog, Row, parse_seconds

_COLUMNS = 18
_SUBMIT, _RUN, _PROCESSORS, _REQUESTED, _USER, _PROGRAM, _QUEUE = 1, 3, 4, 7, 11, 13, 14
_NAMES = {
    _SUBMIT: "2 (submit time)",
    _RUN: "4 (run time)",
    _PROCESSORS: "5 (processors)",
    _REQUESTED: "8 (requested processors)",
    _USER: "12 (user)",
    _PROGRAM: "14 (executable)",
    _QUEUE: "15 (queue)",
}
_UNKNOWN = -1.0


def recognises(first_line: str) -> bool:
    """Return whether a file with this first line is SWF."""
    columns = first_line.split()
    return first_line.lstrip().startswith(";") or (
        len(columns) == _COLUMNS and all(_is_number(column) for column in columns)
    )


def rows(lines: Sequence[str], log: ReadLog) -> list[Row]:
    """Return one row per job whose run time and size are known."""
    found: list[Row] = []
    for number, line in enumerate(lines, 1):
        columns = line.split()
        if not columns or columns[0].startswith(";"):
            continue
        if len(columns) == _COLUMNS:
            _add(found, number, columns, log)
        else:
            log.wrong(number, "", f"{len(columns)} columns, SWF has {_COLUMNS}")
    return found


def _add(found: list[Row], line: int, columns: Sequence[str], log: ReadLog) -> None:
    number = {
        i: log.value(line, name, columns[i], parse_seconds, _UNKNOWN) for i, name in _NAMES.items()
    }
    size = number[_PROCESSORS] if number[_PROCESSORS] > 0 else number[_REQUESTED]
    if number[_RUN] < 0:
        log.skipped["without a run time"] += 1
    elif size <= 0:
        log.skipped["without processors"] += 1
    else:
        found.append(_row(line, number, int(size)))


def _row(line: int, number: dict[int, float], size: int) -> Row:
    return Row(
        line=line,
        name=_named("program", number[_PROGRAM]) or _named("queue", number[_QUEUE]),
        user=_named("user", number[_USER]) or UNKNOWN_USER,
        submit=number[_SUBMIT],
        duration=number[_RUN],
        gpus=size,
    )


def _named(kind: str, number: float) -> str:
    """Return a name made from an SWF number; empty for -1, which means unknown."""
    return f"{kind}-{int(number)}" if number >= 0 else ""


def _is_number(column: str) -> bool:
    try:
        float(column)
    except ValueError:
        return False
    return True
