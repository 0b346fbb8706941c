"""Completions for bash as it wants them: it puts them into the line as they are, so that a blank would end the word."""

from __future__ import annotations

import re

from click.shell_completion import BashComplete, CompletionItem

_SPECIAL = re.compile(r"[^\w@%+=:,./~-]")


class EscapingBash(BashComplete):
    """Values with a backslash before what the shell would read; other shells see to that themselves."""

    def format_completion(self, item: CompletionItem) -> str:
        """Its script reads without -r, which takes one of two backslashes away."""
        escaped = _SPECIAL.sub(r"\\\g<0>", item.value) if item.type == "plain" else item.value
        return f"{item.type},{escaped}".replace("\\", r"\\")
