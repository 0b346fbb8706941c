"""What probably went wrong, in the language of the screen (the guess is hai.client's), and words for stop codes."""

from __future__ import annotations

from collections.abc import Sequence

from hai.client import diagnosis
from hai.client.diagnosis import failing as failing
from hai.client.diagnosis import first_failing as first_failing
from hai_tui.i18n import text


def cause(exit_code: int, lines: Sequence[str]) -> str:
    """One sentence on what probably happened; empty when nothing says so."""
    key = diagnosis.cause(exit_code, lines)
    return text(f"cause.{key}") if key else ""


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
