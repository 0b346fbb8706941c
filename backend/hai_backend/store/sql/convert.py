"""Converts tasks, runs, ranks and events to rows and back. A row is a tuple in the order of the table's columns.

A task's spec is stored as JSON with every field, so that a later change of a default changes no stored task. Unknown
keys are skipped and missing keys take their defaults, because a newer or older server may have written the row.

Texts of programs may contain characters that a database refuses (NUL, unpaired surrogates). These are replaced by
U+FFFD, because the output of a program must not prevent the end of its task from being stored. Credentials in URLs are
redacted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import msgspec

from hai.redaction import redact
from hai_backend.domain.node import Labels
from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Progress, Suspension
from hai_backend.domain.spec import TaskSpec
from hai_backend.domain.task import (
    Outcome,
    Rank,
    RankState,
    Run,
    RunState,
    StopCode,
    Task,
    TaskEvent,
    TaskState,
)

RowValues = tuple[Any, ...]

# The hook `dict` writes each Mapping as a JSON object.
_encode_spec = msgspec.json.Encoder(enc_hook=dict).encode
_encode = json.JSONEncoder(ensure_ascii=False).encode
_STATES = {s.value: s for s in TaskState}
_RUN_STATES = {s.value: s for s in RunState}
_RANK_STATES = {s.value: s for s in RankState}
_OUTCOMES: dict[str | None, Outcome | None] = {None: None, **{o.value: o for o in Outcome}}
_PRIORITIES = {int(p): p for p in Priority}
_NO_PROGRESS = Progress()
_PROGRESS_FIELDS = tuple(f.name for f in fields(Progress))


def dump_spec(spec: TaskSpec) -> str:
    """Return a task's spec as one line of JSON."""
    return _encode_spec(spec).decode()


load_spec = msgspec.json.Decoder(TaskSpec).decode
"""Reads a spec that `dump_spec` of this or another version of the server wrote."""


def dump_names(names: Sequence[str]) -> str:
    """Return short strings as a JSON array."""
    return msgspec.json.encode(names).decode()


load_names = msgspec.json.Decoder(tuple[str, ...]).decode
"""Reads the strings that `dump_names` wrote."""


def dump_labels(labels: Labels) -> str:
    """Return labels as a JSON object."""
    return _encode(dict(labels)) if labels else "{}"


def load_labels(text: str) -> Labels:
    """Read the labels that `dump_labels` wrote."""
    return () if text == "{}" else tuple(json.loads(text).items())


def replace_refused(text: str) -> str:
    """Replace the characters that a database refuses."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def sanitize(text: str) -> str:
    """Return a text of a user or a program as it is stored: redacted, and without refused characters."""
    return replace_refused(redact(text))


def task_to_row(task: Task, tags: str, event_count: int, request_id: str = "") -> RowValues:
    """Return the row of a task. `tags` is the result of `dump_names` for the tags of the task."""
    return (
        task.id,
        task.user,
        task.spec.name,
        task.spec.task_type.value,
        task.spec.resource.group,
        task.spec.options.shared_in_group,
        task.state.value,
        int(task.priority),
        task.created_at,
        task.custom_rank,
        tags,
        task.starred,
        task.whole_life_state,
        task.outcome.value if task.outcome else None,
        task.wanted_outcome.value if task.wanted_outcome else None,
        sanitize(task.reason),
        task.held,
        task.not_before,
        task.suspend_count,
        task.failure_count,
        task.node_failure_count,
        task.launch_failure_count,
        task.run_seconds,
        task.started_at,
        task.finished_at,
        task.run.number if task.run else 0,
        event_count,
        task.revision,
        task.version,
        dump_spec(task.spec),
        request_id,
        _dump_progress(task.progress),
        _encode(task.awaited) if task.awaited else "[]",
    )


def task_from_row(row: Sequence[Any], run: Run | None) -> Task:
    return Task(
        id=row[0],
        user=row[1],
        spec=load_spec(row[29]),
        state=_STATES[row[6]],
        priority=_PRIORITIES[row[7]],
        created_at=row[8],
        custom_rank=row[9],
        tags=load_names(row[10]),
        starred=bool(row[11]),
        whole_life_state=row[12],
        outcome=_OUTCOMES[row[13]],
        wanted_outcome=_OUTCOMES[row[14]],
        reason=row[15],
        held=bool(row[16]),
        not_before=row[17],
        suspend_count=row[18],
        failure_count=row[19],
        node_failure_count=row[20],
        launch_failure_count=row[21],
        run_seconds=row[22],
        started_at=row[23],
        finished_at=row[24],
        run=run,
        revision=row[27],
        version=row[28],
        progress=_load_progress(row[31]),
        awaited=() if row[32] == "[]" else tuple(json.loads(row[32])),
    )


def _dump_progress(progress: Progress) -> str:
    """Return the measured fields as JSON. Most tasks are waiting and have no measurements."""
    if progress is _NO_PROGRESS or progress == _NO_PROGRESS:
        return "{}"
    values = {name: getattr(progress, name) for name in _PROGRESS_FIELDS}
    values["suspensions"] = tuple((s.at, s.for_task, s.higher) for s in progress.suspensions)
    return _encode({name: v for name, v in values.items() if v != getattr(_NO_PROGRESS, name)})


def _load_progress(text: str) -> Progress:
    if text == "{}":
        return _NO_PROGRESS
    values = {name: value for name, value in json.loads(text).items() if name in _PROGRESS_FIELDS}
    values["suspensions"] = tuple(Suspension(*item) for item in values.get("suspensions", ()))
    return Progress(**values)


def run_to_row(task_id: int, run: Run) -> RowValues:
    return (
        task_id,
        run.number,
        run.state.value,
        run.created_at,
        int(run.priority),
        run.whole_life_state,
        int(run.stop_code),
        sanitize(run.reason),
        run.suspended_for,
        run.started_at,
        run.ended_at,
        run.deadline,
        run.acknowledged_at is not None,
        run.asked_at,
        run.yielded,
        run.environment_lock,
        run.killed_at,
        run.acknowledged_at,
        run.load_seconds,
        run.save_seconds,
        run.write_seconds,
    )


def run_from_row(row: Sequence[Any], ranks: tuple[Rank, ...]) -> Run:
    return Run(
        number=row[1],
        state=_RUN_STATES[row[2]],
        ranks=ranks,
        created_at=row[3],
        priority=_PRIORITIES[row[4]],
        whole_life_state=row[5],
        stop_code=StopCode(row[6]) if row[6] else StopCode.NONE,
        reason=row[7],
        suspended_for=row[8],
        started_at=row[9],
        ended_at=row[10],
        deadline=row[11],
        asked_at=row[13],
        yielded=bool(row[14]),
        environment_lock=row[15],
        killed_at=row[16],
        acknowledged_at=row[13] if row[17] is None and row[12] else row[17],
        load_seconds=row[18],
        save_seconds=row[19],
        write_seconds=row[20],
    )


def rank_to_row(task_id: int, run: int, rank: Rank) -> RowValues:
    return (
        task_id,
        run,
        rank.index,
        rank.node,
        rank.state.value,
        rank.role,
        rank.address,
        rank.free_port,
        rank.exit_code,
        sanitize(rank.last_lines),
        rank.started_at,
        rank.ended_at,
        _encode(rank.gpus) if rank.gpus else "[]",
        rank.silent_since,
        rank.saved_bytes,
        rank.state_bytes,
    )


def rank_from_row(row: Sequence[Any]) -> Rank:
    _, _, index, node, state, *others, gpus, silent_since, saved_bytes, state_bytes = row
    others += [() if gpus == "[]" else tuple(json.loads(gpus)), silent_since]
    others += [saved_bytes, state_bytes]
    return Rank(index, node, _RANK_STATES[state], *others)


def event_to_row(task_id: int, sequence: int, event: TaskEvent) -> RowValues:
    reason = sanitize(event.reason)
    return (task_id, sequence, event.time, event.actor, event.kind, reason, event.run, event.rank)


def event_from_row(row: Sequence[Any]) -> tuple[int, TaskEvent]:
    """Return the sequence number and the event of a row."""
    _, sequence, *values = row
    return sequence, TaskEvent(*values)
