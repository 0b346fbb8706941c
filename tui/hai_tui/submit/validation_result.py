"""What is said of a draft below its form: what is wrong beside no line of it, else what the server would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from hai.client.errors import Violation
from hai_tui.i18n import text
from hai_tui.submit.draft import field_of
from hai_tui.views.dry_run import sentences
from hai_tui.views.start_forecast import sentences as start_sentences

if TYPE_CHECKING:
    from hai.v1.task_service_pb2 import DryRunTaskResponse

_SIGNS = {
    "STARTS": ("✓", "good"),
    "PROMISED": ("◔", "busy"),
    "WAITS": ("○", "waits"),
    "NEVER": ("✗", "bad"),
}


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Nothing of it: the server has not answered yet. `sentence` is why it could not be asked."""

    broken: tuple[Violation, ...] = ()
    answer: DryRunTaskResponse | None = None
    sentence: str = ""

    def beside(self) -> Mapping[str, str]:
        """What stands beside a line of the form, by its path."""
        return {field: each.message for each in self.broken if (field := field_of(each))}

    def as_text(self, shades: Mapping[str, Style], now: float) -> Text:
        """What stands below."""
        if self.broken:
            return Text("\n".join(self._general_violations()), shades["bad"])
        if self.sentence:
            return Text(self.sentence, shades["waits"])
        if self.answer is None:
            return Text(text("submit.checking"), shades["quiet"])
        sign, tone = _SIGNS.get(self.answer.outcome, ("?", "plain"))
        first, *other_lines = sentences(self.answer)
        result = Text(f"{sign} {first}", shades[tone])
        for line in [*start_sentences(self.answer.waiting.predicted_start, now), *other_lines]:
            result.append(f"\n{line}", "not bold")
        return result

    def _general_violations(self) -> list[str]:
        """Violations without a line in the form, and those that name a line of the yaml."""
        other_lines = [f"✗ {each}" for each in self.broken if each.line or not field_of(each)]
        return other_lines or [text("submit.beside", count=len(self.beside()))]
