"""What a program printed, made fit to be drawn: colours stay, everything else that steers a terminal goes.

Programs print what they like: cursor jumps, window titles, answers to questions that nobody asked, half a code at the
end of a line. A terminal would obey. Here the only codes that survive are SGR (colours, bold …), and they are read by
Rich and become styles; no control character is ever handed on.
"""

from __future__ import annotations

import re

from rich.ansi import AnsiDecoder
from rich.style import Style
from rich.text import Text

TAB = 8

_CODE = re.compile(
    r"(?:\x1b\[|\x9b)(?P<args>[0-?]*)(?P<middle>[ -/]*)(?P<final>[@-~])"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]?"
)
"""CSI; OSC, DCS and the like up to their end (without one only their beginning goes); what else begins with ESC."""

_PLAIN = re.compile(r"[0-9;:]*")
_CONCEALED = Style(conceal=False, blink=False, blink2=False)


def sanitize(raw: str) -> str:
    """The text with SGR codes and nothing else that is not printable."""
    if raw.isprintable():
        return raw
    parts: list[str] = []
    at = 0
    raw = _last(raw)
    for match in _CODE.finditer(raw):
        parts += (_printable(raw[at : match.start()]), _colours(match))
        at = match.end()
    return "".join(parts) + _printable(raw[at:])


def styled(raw: str) -> Text:
    """The same with its colours as styles. Nothing is concealed and nothing blinks."""
    clean = sanitize(raw)
    if "\x1b" not in clean:
        return Text(_expanded(clean), end="")
    text = AnsiDecoder().decode_line(clean)
    for number, span in enumerate(text.spans):
        if isinstance(span.style, Style):
            text.spans[number] = span._replace(style=span.style + _CONCEALED)
    text.expand_tabs(TAB)
    text.end = ""
    return text


def plain(raw: str) -> str:
    """The same without colours: what is searched, counted and copied."""
    if raw.isprintable():
        return raw
    if "\b" in raw:  # what it takes back depends on where colours begin and end
        return _expanded(_CODE.sub("", sanitize(raw)))
    return _expanded(_printable(_CODE.sub("", _last(raw))))


def _last(raw: str) -> str:
    """What a line that was written over and over shows in the end."""
    return raw.rstrip("\r").rpartition("\r")[2]


def _expanded(text: str) -> str:
    """Tabs as blanks, counted in cells as `styled` counts them."""
    if "\t" not in text:
        return text
    made = Text(text)
    made.expand_tabs(TAB)
    return made.plain


def _colours(match: re.Match[str]) -> str:
    """A code again if it is SGR and well formed, in the form that Rich reads."""
    args = match["args"]
    if match["final"] != "m" or match["middle"] or not _PLAIN.fullmatch(args):
        return ""
    return f"\x1b[{args.replace(':', ';')}m"


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    if "\b" in text:
        text = _backspaced(text)
    return "".join(c if c.isprintable() or c == "\t" else _replacement(c) for c in text)


def _backspaced(text: str) -> str:
    """As a spinner looks in the end: each backspace takes the sign before it."""
    parts: list[str] = []
    for character in text:
        if character != "\b":
            parts.append(character)
        elif parts:
            parts.pop()
    return "".join(parts)


def _replacement(character: str) -> str:
    """Blanks of all kinds stay blanks; what can not be seen goes."""
    if character == "\u3000":
        return "  "
    return " " if character.isspace() and character not in "\r\n\x1c\x1d\x1e\x1f\x85" else ""
