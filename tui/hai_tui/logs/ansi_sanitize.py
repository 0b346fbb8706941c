"""Makes the output of programs safe for a terminal: colours stay, all other control sequences are removed.

A program may print cursor movements, window titles, queries to the terminal, or half a sequence at the end of a line.
The terminal would obey. Here only SGR sequences (colours, bold …) survive. Rich turns them into styles.
"""

from __future__ import annotations

import re

from rich.ansi import AnsiDecoder
from rich.style import Style
from rich.text import Text

TAB_CELLS = 8

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)(?P<args>[0-?]*)(?P<middle>[ -/]*)(?P<final>[@-~])"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]?"
)
"""CSI; OSC, DCS and similar up to their terminator (without one only the introducer is removed); any other ESC."""

_SGR_ARGUMENTS = re.compile(r"[0-9;:]*")
_VISIBLE = Style(conceal=False, blink=False, blink2=False)


def sanitize(raw: str) -> str:
    """Return the text with SGR sequences and otherwise only printable characters."""
    if raw.isprintable():
        return raw
    parts: list[str] = []
    position = 0
    raw = _last_overwrite(raw)
    for match in _SEQUENCE.finditer(raw):
        parts += (_remove_control_characters(raw[position : match.start()]), _keep_sgr(match))
        position = match.end()
    return "".join(parts) + _remove_control_characters(raw[position:])


def styled(raw: str) -> Text:
    """Return the text with its colours as styles. No text is concealed or blinks."""
    clean = sanitize(raw)
    if "\x1b" not in clean:
        return Text(_expand_tabs(clean), end="")
    text = AnsiDecoder().decode_line(clean)
    for number, span in enumerate(text.spans):
        if isinstance(span.style, Style):
            text.spans[number] = span._replace(style=span.style + _VISIBLE)
    text.expand_tabs(TAB_CELLS)
    text.end = ""
    return text


def plain(raw: str) -> str:
    """Return the text without colours, for search, width and copying."""
    if raw.isprintable():
        return raw
    if "\b" in raw:  # a backspace also deletes part of a colour sequence, so `sanitize` comes first
        return _expand_tabs(_SEQUENCE.sub("", sanitize(raw)))
    return _expand_tabs(_remove_control_characters(_SEQUENCE.sub("", _last_overwrite(raw))))


def _last_overwrite(raw: str) -> str:
    """Return what a line shows at the end, if carriage returns have overwritten it."""
    return raw.rstrip("\r").rpartition("\r")[2]


def _expand_tabs(text: str) -> str:
    """Replace tabs by blanks, counted in cells as in `styled`."""
    if "\t" not in text:
        return text
    expanded = Text(text)
    expanded.expand_tabs(TAB_CELLS)
    return expanded.plain


def _keep_sgr(match: re.Match[str]) -> str:
    """Return a well-formed SGR sequence in the form that Rich reads; empty for any other sequence."""
    args = match["args"]
    if match["final"] != "m" or match["middle"] or not _SGR_ARGUMENTS.fullmatch(args):
        return ""
    return f"\x1b[{args.replace(':', ';')}m"


def _remove_control_characters(text: str) -> str:
    if text.isprintable():
        return text
    if "\b" in text:
        text = _apply_backspaces(text)
    return "".join(c if c.isprintable() or c == "\t" else _replace_character(c) for c in text)


def _apply_backspaces(text: str) -> str:
    """Let each backspace delete the character before it, as in the output of a spinner."""
    parts: list[str] = []
    for character in text:
        if character != "\b":
            parts.append(character)
        elif parts:
            parts.pop()
    return "".join(parts)


def _replace_character(character: str) -> str:
    """Keep white space as blanks and remove invisible characters."""
    if character == "\u3000":
        return "  "
    return " " if character.isspace() and character not in "\r\n\x1c\x1d\x1e\x1f\x85" else ""
