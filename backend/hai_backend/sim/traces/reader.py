"""Reads traces of jobs from files of several formats. The result is either all jobs or all problems."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hai_backend.domain.priority import Priority
from hai_backend.sim.replay.job import Job
from hai_backend.sim.traces import decision_log as trace_decisions
from hai_backend.sim.traces import hai_csv as trace_csv
from hai_backend.sim.traces import sacct as trace_sacct
from hai_backend.sim.traces import snapshot as trace_snapshot
from hai_backend.sim.traces import swf as trace_swf
from hai_backend.sim.traces.rows import ReadLog, Row, bad_trace

_GZIP = b"\x1f\x8b"

Parser = Callable[[Sequence[str], ReadLog], list[Row]]

FORMATS: Mapping[str, Parser] = {
    "csv": trace_csv.rows,
    "sacct": trace_sacct.rows,
    "swf": trace_swf.rows,
    "snapshot": trace_snapshot.rows,
    "decisions": trace_decisions.rows,
}
"""Every format: how its lines become rows."""

_RECOGNISED: Mapping[str, Callable[[str], bool]] = {
    "csv": trace_csv.recognises,
    "sacct": trace_sacct.recognises,
    "swf": trace_swf.recognises,
    "snapshot": trace_snapshot.recognises,
    "decisions": trace_decisions.recognises,
}


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs of a file in order of submission, and how many lines were skipped, by reason."""

    source: str
    format: str
    jobs: tuple[Job, ...]
    skipped: Mapping[str, int]


def read(
    path: Path | str,
    *,
    gpus_per_node: int,
    time_scale: float = 1.0,
    flat_priority: bool = False,
    format: str | None = None,
) -> tuple[Job, ...]:
    """Return the jobs of a file. Raises Invalid, OSError."""
    return load(
        path,
        gpus_per_node=gpus_per_node,
        time_scale=time_scale,
        flat_priority=flat_priority,
        format=format,
    ).jobs


def load(
    path: Path | str,
    *,
    gpus_per_node: int,
    time_scale: float = 1.0,
    flat_priority: bool = False,
    format: str | None = None,
    seed: int = 1,
) -> Trace:
    """Return the jobs of a file, and what was skipped. Raises Invalid with all problems, or OSError."""
    log = ReadLog(str(path), seed)
    lines = _text(Path(path)).replace("\r\n", "\n").split("\n")
    kind = format or _recognise(lines, log.source)
    rows = FORMATS[kind](lines, log)
    nodes = [_nodes(row, kind, gpus_per_node, log) for row in rows]
    log.check()
    if not rows:
        raise bad_trace(log.source, f"no job in it{_left_out(log)}")
    jobs = _jobs(rows, nodes, time_scale, flat_priority)
    return Trace(log.source, kind, jobs, dict(log.skipped))


def _text(path: Path) -> str:
    data = path.read_bytes()
    try:
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
        return data.decode("utf-8-sig")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise bad_trace(
            str(path), f"the gzip file is damaged ({error}); copy or make it anew"
        ) from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise bad_trace(
            f"{path}:{line}", "not text in UTF-8; a trace is a text file, gzipped or not"
        ) from error


def _recognise(lines: Sequence[str], source: str) -> str:
    first = next((line for line in lines if line.strip()), "")
    found = next((kind for kind, is_it in _RECOGNISED.items() if is_it(first)), None)
    if found is None:
        raise bad_trace(
            source,
            f"not recognised: its first line is {first[:80]!r}; it should be the header of our CSV"
            " (…,submit_s,…) or of `sacct --parsable2` (JobID|…), or begin as SWF does with `;`, or as a"
            " snapshot or a log of decisions of our server;"
            f" or choose one with --format {'|'.join(FORMATS)}",
        )
    return found


def _nodes(row: Row, kind: str, gpus_per_node: int, log: ReadLog) -> int:
    """Return the number of whole nodes. A number for nodes of 8 GPUs in the CSV must agree with the GPUs."""
    if row.gpus == 0:
        return max(1, row.nodes or 1)
    nodes = -(-row.gpus // gpus_per_node)
    if kind == "csv" and gpus_per_node == 8 and row.nodes not in (None, nodes):
        log.wrong(
            row.line,
            trace_csv.NODES,
            f"{row.nodes}, but {row.gpus} GPUs take {nodes} nodes of 8; correct one of the two",
        )
    return nodes


def _jobs(
    rows: Sequence[Row], nodes: Sequence[int], time_scale: float, flat: bool
) -> tuple[Job, ...]:
    """Return the jobs in order of submission; equal ones stay in the order of the file. The first is submitted at 0."""
    order = sorted(zip(rows, nodes, strict=True), key=lambda pair: pair[0].submit)
    first = order[0][0].submit
    return tuple(
        Job(
            id=id,
            name=row.name,
            user=row.user,
            submit=(row.submit - first) / time_scale,
            duration=row.duration,
            gpus=row.gpus,
            nodes=count,
            priority=Priority.NORMAL if flat else row.priority,
        )
        for id, (row, count) in enumerate(order, 1)
    )


def _left_out(log: ReadLog) -> str:
    told = ", ".join(f"{count} {reason}" for reason, count in log.skipped.items())
    return f"; left out: {told}" if told else ""
