"""Diagnoses a failed task: the rank that failed first, its exit code, the likely cause, and what to try.

`ExplainTask` of the server, the command line and the terminal app share this module. The likely cause is a guess from
the exit code and the last lines of the log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hai.v1.task_pb2 import (
    RANK_STATE_STOPPED,
    RANK_STATE_STOPPED_TERMINATING,
    TASK_OUTCOME_FAILED,
    Rank,
    Run,
    Task,
)

CAUSES: Mapping[str, str] = {
    "gpumem": "the GPU's memory was full: a smaller batch, or more nodes",
    "gpubroken": "the GPU reported a hardware fault (Xid or ECC): tell an operator; another node will do",
    "driver": "the environment's CUDA does not fit the node's driver or GPU",
    "nccl": "communication between ranks broke (NCCL): most often another rank died first, or the network is ill",
    "module": "a Python package is missing in the environment: see options.py_venv, or haienv",
    "disk": "a disk was full",
    "memory": "the node's memory was full: fewer loader workers, or a larger node",
    "file": "a file was not there: is the workspace pushed, is the path mounted?",
    "permission": "a file or directory may not be used by this user",
    "port": "a port was taken: another program, or an earlier run that has not left",
    "network": "a server that it called did not answer",
    "command": "a command was not found: is it in the environment or image?",
    "syntax": "the program has a syntax error",
    "exception": "the program raised an error; the line above says which",
    "killed": "it was killed (SIGKILL): most often because the node's memory was full",
    "segfault": "it crashed in native code (SIGSEGV)",
    "notexecutable": "the file is not executable",
    "abort": "it aborted in native code (SIGABRT)",
}
"""The likely causes by the keys that `likely_cause` returns. The text after a colon says what to do."""

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), key)
    for pattern, key in (
        (r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|OutOfMemoryError.*GPU", "gpumem"),
        (r"\bNVRM: Xid|\bXid \(|uncorrectable ECC|CUDA_ERROR_ECC", "gpubroken"),
        (
            r"CUDA error: no kernel image|CUDA driver version is insufficient|no CUDA-capable",
            "driver",
        ),
        (
            r"NCCL (error|WARN)|ncclSystemError|ncclRemoteError|Watchdog caught collective",
            "nccl",
        ),
        (r"No module named '?([\w.]+)|ModuleNotFoundError|ImportError", "module"),
        (r"No space left on device", "disk"),
        (r"MemoryError|Cannot allocate memory|std::bad_alloc|oom-kill|Out of memory", "memory"),
        (r"No such file or directory|FileNotFoundError", "file"),
        (r"Permission denied|PermissionError", "permission"),
        (r"Address already in use", "port"),
        (r"Connection refused|ConnectionRefusedError|Name or service not known", "network"),
        (r"command not found", "command"),
        (r"SyntaxError|IndentationError", "syntax"),
        (r"AssertionError|ValueError|TypeError|KeyError|IndexError|RuntimeError", "exception"),
    )
)
_STOPPED_STATES = (RANK_STATE_STOPPED_TERMINATING, RANK_STATE_STOPPED)
_EXIT_CODE_CAUSES = {
    137: "killed",
    139: "segfault",
    127: "command",
    126: "notexecutable",
    134: "abort",
}
_MAX_LINES = 10
_MAX_CHARS = 200


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Sentences about what happened (in order), what to try, and the likely cause (empty if unknown)."""

    found: tuple[str, ...]
    to_try: tuple[str, ...]
    likely: str = ""


def diagnose(task: Task) -> Diagnosis | None:
    """Return why a task has failed, or None if it has not."""
    if task.outcome != TASK_OUTCOME_FAILED:
        return None
    rank, likely = first_failed_rank(task.run), ""
    found = [task.reason or "the task has failed"]
    if rank is not None:
        likely = CAUSES.get(likely_cause(rank.exit_code, rank.last_lines.splitlines()), "")
        found += [*_describe_failure(task.run, rank), *_last_lines(rank)]
        found += [f"likely cause: {likely}"] * bool(likely)
    return Diagnosis(tuple(found), tuple(_suggest_actions(task, rank)), likely)


def failed_ranks(run: Run) -> list[Rank]:
    """Return the ranks whose programs failed. A rank that the platform stopped does not count."""
    return [rank for rank in run.ranks if rank.exit_code and rank.state not in _STOPPED_STATES]


def first_failed_rank(run: Run) -> Rank | None:
    """Return the rank that failed first. Most likely the others were terminated because of it."""
    failed = failed_ranks(run)
    not_killed = [rank for rank in failed if rank.exit_code not in (143, 137)] or failed
    times = ((r.end_time.ToNanoseconds() or 1 << 62, r.index, r) for r in not_killed)
    return min(times, key=lambda at: at[:2], default=(0, 0, None))[2]


def likely_cause(exit_code: int, lines: Sequence[str]) -> str:
    """Return a key of CAUSES, from the last line that points to a cause, else from the exit code; else empty."""
    for line in reversed(lines):
        for pattern, key in _PATTERNS:
            if pattern.search(line):
                return key
    return _EXIT_CODE_CAUSES.get(exit_code, "")


def _describe_failure(run: Run, rank: Rank) -> list[str]:
    meaning_text = rank.exit_meaning
    meaning = (
        f" ({meaning_text})" if meaning_text and not meaning_text.startswith("exit code") else ""
    )
    found = [
        f"rank {rank.index} on {rank.node} was the first to fail: exit code {rank.exit_code}{meaning}"
    ]
    if len(run.ranks) > 1:
        found.append(f"{len(failed_ranks(run))} of {len(run.ranks)} ranks failed")
    return found


def _last_lines(rank: Rank) -> list[str]:
    lines = [line.rstrip() for line in rank.last_lines.splitlines() if line.strip()][-_MAX_LINES:]
    shortened = (
        line if len(line) <= _MAX_CHARS else f"{line[: _MAX_CHARS - 3]}..." for line in lines
    )
    return (
        [f"last lines of rank {rank.index}:", *(f"| {line}" for line in shortened)] if lines else []
    )


def _suggest_actions(task: Task, rank: Rank | None) -> list[str]:
    rank_option = f" -r {rank.index}" if rank is not None and len(task.run.ranks) > 1 else ""
    return [
        f"read its log: hai logs {task.id}{rank_option}",
        f"submit it again: hai describe {task.id} | hai run -",
    ]
