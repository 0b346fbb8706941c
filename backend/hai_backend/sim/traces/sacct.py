"""What Slurm's accounting prints with `sacct --allusers --parsable2 --format …`: cells apart by `|`, header first.

Steps (12.batch) are parts of jobs and are passed over; so are jobs that have never started or not ended yet.
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
    """True when a file that begins so comes from sacct."""
    return "JobID" in first_line.strip().split("|")


def rows(lines: Sequence[str], log: ReadLog) -> list[Row]:
    """One row per job that has run. Raises Invalid when the header lacks a column."""
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
        cells = cells[:-1]  # --parsable ends each line with one more bar than --parsable2
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
    """Why a line is no job that has run; empty for one that has."""
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
    """Seconds of a local time, or of one in seconds since 1970 (SLURM_TIME_FORMAT=%s)."""
    if text.isdigit():
        return float(text)
    try:
        return (datetime.fromisoformat(text).replace(tzinfo=None) - _EPOCH).total_seconds()
    except ValueError:
        raise ValueError(f"{text!r} is not a time such as 2026-11-21T17:05:00") from None


def _gpus(tres: str) -> int:
    """`gres/gpu=8`; where only kinds are told (gres/gpu:a100=8), their sum."""
    found = _GPUS.findall(tres)
    total = [int(count) for kind, count in found if not kind]
    return total[0] if total else sum(int(count) for _, count in found)


def _name(cell: Mapping[str, str]) -> str:
    """A job's name without its numbers, else its partition."""
    return _DIGITS.sub("", cell.get("JobName", "")).strip(" -_.") or cell.get("Partition", "")


def _level(cell: Mapping[str, str]) -> Priority:
    """Slurm's own priorities are sums of factors: only a number or a quality of service that is a level counts."""
    named = (cell.get("Priority", ""), cell.get("QOS", "").lower())
    return next((_LEVELS[word] for word in named if word in _LEVELS), Priority.NORMAL)
