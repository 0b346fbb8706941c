"""What probably went wrong, in the language of the screen (the guess is hai.client's), and words for stop codes."""

from __future__ import annotations

from collections.abc import Sequence

from hai.client.tasks import diagnosis
from hai.client.text.formatting import stop_code_names
from hai_tui.i18n import text


def cause(exit_code: int, lines: Sequence[str]) -> str:
    """One sentence on what probably happened; empty when nothing says so."""
    key = diagnosis.likely_cause(exit_code, lines)
    return text(f"cause.{key}") if key else ""


def stop_code_text(code: int) -> str:
    """Every bit of a stop code by name; bits that are not known keep their number."""
    return "+".join(stop_code_names(code))
