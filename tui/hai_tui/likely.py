"""What probably went wrong, from an exit code and last lines: a hint for a person, never a verdict. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hai.v1.task_pb2 import RANK_STATE_STOPPED, RANK_STATE_STOPPED_TERMINATING
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Rank, Run

_SIGNS: tuple[tuple[str, str], ...] = (
    (r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|OutOfMemoryError.*GPU", "gpumem"),
    (r"\bNVRM: Xid|\bXid \(|uncorrectable ECC|CUDA_ERROR_ECC", "gpubroken"),
    (r"CUDA error: no kernel image|CUDA driver version is insufficient|no CUDA-capable", "driver"),
    (r"NCCL (error|WARN)|ncclSystemError|ncclRemoteError|Watchdog caught collective", "nccl"),
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
_TOLD = (RANK_STATE_STOPPED_TERMINATING, RANK_STATE_STOPPED)
_CODES = {137: "killed", 139: "segfault", 127: "command", 126: "notexecutable", 134: "abort"}


def failing(run: Run) -> list[Rank]:
    """Ranks whose programs failed; those that were told to end have not, whatever their exit codes."""
    return [rank for rank in run.ranks if rank.exit_code and rank.state not in _TOLD]


def first_failing(run: Run) -> Rank | None:
    """The rank that failed first: the others were most likely ended because of it."""
    failed = failing(run)
    own = [rank for rank in failed if rank.exit_code not in (143, 137)] or failed
    times = ((r.end_time.ToNanoseconds() or 1 << 62, r.index, r) for r in own)
    return min(times, key=lambda at: at[:2], default=(0, 0, None))[2]


def cause(exit_code: int, lines: Sequence[str]) -> str:
    """One sentence on what probably happened; empty when nothing says so."""
    for line in reversed(lines):
        for pattern, key in _SIGNS:
            if re.search(pattern, line):
                return text(f"cause.{key}")
    return text(f"cause.{_CODES[exit_code]}") if exit_code in _CODES else ""


STOP_CODES = {
    1: "STOP", 16: "INTERRUPT", 32: "UNSCHEDULABLE", 128: "FAILED", 256: "INIT_FAILED",
    512: "TIMEOUT", 1024: "MANUAL_STOP", 2048: "HOOK_RESTART", 4096: "MANUAL_SUCCEEDED",
    8192: "MANUAL_FAILED", 16384: "NODE_FAILURE",
}  # fmt: skip
"""HAI's bit mask of why a run ended."""


def stop_words(code: int) -> str:
    """Every bit of a stop code by name; bits that are not known keep their number."""
    names = [name for bit, name in STOP_CODES.items() if code & bit]
    rest = code & ~sum(STOP_CODES)
    return "+".join([*names, *([str(rest)] if rest else [])])
