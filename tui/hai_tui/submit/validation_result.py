"""The text below the form: violations that belong to no line, or else what the server would do with the task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from hai.client.errors import Violation
from hai_tui.i18n import text
from hai_tui.submit.draft import field_of
from hai_tui.views.dry_run import dry_run_sentences
from hai_tui.views.start_forecast import start_sentences

if TYPE_CHECKING:
    from hai.v1.task_service_pb2 import DryRunTaskResponse

_GLYPHS = {
    "STARTS": ("✓", "good"),
    "PROMISED": ("◔", "busy"),
    "WAITS": ("○", "waits"),
    "NEVER": ("✗", "bad"),
}


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """The result of checking a draft; an empty one means that the server has not answered yet."""

    violations: tuple[Violation, ...] = ()
    answer: DryRunTaskResponse | None = None
    error: str = ""  # why the server could not check the draft

    def field_messages(self) -> Mapping[str, str]:
        """Return the message of each line of the form, by path."""
        return {field: each.message for each in self.violations if (field := field_of(each))}

    def as_text(self, styles: Mapping[str, Style], now: float) -> Text:
        """Return the text below the form."""
        if self.violations:
            return Text("\n".join(self._general_messages()), styles["bad"])
        if self.error:
            return Text(self.error, styles["waits"])
        if self.answer is None:
            return Text(text("submit.checking"), styles["quiet"])
        glyph, tone = _GLYPHS.get(self.answer.outcome, ("?", "plain"))
        first, *other_lines = dry_run_sentences(self.answer)
        result = Text(f"{glyph} {first}", styles[tone])
        for line in [*start_sentences(self.answer.waiting.predicted_start, now), *other_lines]:
            result.append(f"\n{line}", "not bold")
        return result

    def _general_messages(self) -> list[str]:
        """Return violations that have no line in the form, or that name a line of the yaml."""
        other_lines = [f"✗ {each}" for each in self.violations if each.line or not field_of(each)]
        return other_lines or [text("submit.beside", count=len(self.field_messages()))]
