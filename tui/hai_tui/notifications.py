"""Passing notes at the bottom right: what was done, what was refused and why."""

from __future__ import annotations

from textual.app import App
from textual.notifications import SeverityLevel

from hai.client.errors import HaiError

_ERROR_SECONDS = 12.0


class Notifications(App[int]):
    """An app that says things. What is said again takes the place of what was said."""

    def say(self, sentence: str, *, warning: bool = False) -> None:
        """A passing note."""
        self._note(sentence, "warning" if warning else "information")

    def fail(self, error: HaiError) -> None:
        """An error of the client, with what to do about it."""
        hint = f"\n{error.hint}" if error.hint else ""
        self._note(f"{error.message}{hint}\n[{error.reason}]", "error", _ERROR_SECONDS)

    def _note(self, told: str, severity: SeverityLevel, seconds: float | None = None) -> None:
        for note in [each for each in self._notifications if each.message == told]:
            self._unnotify(note, refresh=False)
        self.notify(told, severity=severity, timeout=seconds, markup=False)
