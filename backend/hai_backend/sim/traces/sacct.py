"""Reads the output of Slurm's `sacct --allusers --parsable2 --format …`: a header, then cells separated by `|`.

Steps (such as 12.batch) are parts of jobs and are skipped. Jobs that have not started or not ended are skipped too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.sim.traces.rows import (
    UNKNOWN_USER,
    ReadLog,
    Row,
    bad_trace,
    parse_count,
    require_columns,
)

_NEEDED = ("JobID", "Submit", "Start", "End")
_SIZES = ("AllocTRES", "NNodes")
_NEVER = {"", "unknown", "none", "n/a"}
_EPOCH = datetime(1970, 1, 1)
_GPUS = re.compile(r"gres/gpu(?::([^=,]+))?=(\d+)")
_DIGITS = re.compile(r"\d+")

_LEVELS: Mapping[str, Priority] = {
    **{str(int(level)): level for level in LEVELS},
    **{level.name.lower(): level for level in LEVELS},
}


def recognises(first_line: str) -> bool:
    """Return whether a file with this first line comes from sacct."""
    return "JobID" in first_line.strip().split("|")


def rows(lines: Sequence[str], log: ReadLog) -> list[Row]:
    """Return one row per job that has run. Raises Invalid if the header lacks a column."""
    start = next((i for i, line in enumerate(lines) if line.strip()), 0)
    header = _cells(lines[start].strip().removesuffix("|"))
    require_columns(log.source, start + 1, header, _NEEDED)
    if not set(_SIZES) & set(header):
        raise bad_trace(f"{log.source}:{start + 1}", f"the header lacks {' or '.join(_SIZES)}")
    found: list[Row] = []
    for number, line in enumerate(lines[start + 1 :], start + 2):
        if line.strip():
            _add(found, number, header, _cells(line), log)
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def _add(
    found: list[Row], line: int, header: Sequence[str], cells: list[str], log: ReadLog
) -> None:
    if len(cells) == len(header) + 1 and not cells[-1]:
        cells = cells[:-1]  # --parsable ends each line with one more bar than --parsable2 does
    if len(cells) != len(header):
        log.wrong(
            line,
            "",
            f"{len(cells)} columns, the header has {len(header)};"
            " sacct does not quote: leave out columns that may hold a `|`, such as JobName",
        )
        return
    cell = dict(zip(header, cells, strict=True))
    if reason := _no_job(cell):
        log.skipped[reason] += 1
    else:
        found.append(_row(line, cell, log))


def _no_job(cell: Mapping[str, str]) -> str:
    """Say why a line is not a job that has run; return an empty text if it is."""
    if "." in cell["JobID"]:
        return "steps of jobs"
    if cell["Start"].lower() in _NEVER:
        return "never started"
    return "not ended" if cell["End"].lower() in _NEVER else ""


def _row(line: int, cell: Mapping[str, str], log: ReadLog) -> Row:
    submit, start, end = (
        log.value(line, column, cell[column], _timestamp, 0.0)
        for column in ("Submit", "Start", "End")
    )
    if submit and start and 0 < end < start:
        log.wrong(line, "End", f"{cell['End']} is before the start, {cell['Start']}")
    nodes = cell.get("NNodes")
    return Row(
        line=line,
        name=_name(cell),
        user=cell.get("User") or UNKNOWN_USER,
        submit=submit,
        duration=max(0.0, end - start),
        gpus=_gpus(cell.get("AllocTRES", "")),
        nodes=log.value(line, "NNodes", nodes, parse_count, None) if nodes else None,
        priority=_level(cell),
    )


def _timestamp(text: str) -> float:
    """Parse a local time, or seconds since 1970 (SLURM_TIME_FORMAT=%s)."""
    if text.isdigit():
        return float(text)
    try:
        return (datetime.fromisoformat(text).replace(tzinfo=None) - _EPOCH).total_seconds()
    except ValueError:
        raise ValueError(f"{text!r} is not a time such as 2026-11-21T17:05:00") from None


def _gpus(tres: str) -> int:
    """Return the number in `gres/gpu=8`, or the sum over types of GPUs (gres/gpu:a100=8)."""
    found = _GPUS.findall(tres)
    total = [int(count) for kind, count in found if not kind]
    return total[0] if total else sum(int(count) for _, count in found)


def _name(cell: Mapping[str, str]) -> str:
    """Return the name of a job without digits, or else its partition."""
    return _DIGITS.sub("", cell.get("JobName", "")).strip(" -_.") or cell.get("Partition", "")


def _level(cell: Mapping[str, str]) -> Priority:
    """Return the level if the priority or the quality of service is one.

    Other priorities of Slurm are sums of factors.
    """
    named = (cell.get("Priority", ""), cell.get("QOS", "").lower())
    return next((_LEVELS[word] for word in named if word in _LEVELS), Priority.NORMAL)
