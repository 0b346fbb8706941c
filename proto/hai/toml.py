"""TOML that anybody may have written: what Python's reader takes gigabytes for is refused before it is read. Pure.

A dotted key costs that reader the square of its parts, in time and in memory: 250 KB of one are 60 GB. haienv
writes keys of two parts, and texts of one line. Imports nothing of ours, so every package may use it.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

_MOST_DOTS = 16  # of a line, outside of texts
# Atomic groups, because possessive quantifiers are wrong before Python 3.11.4 (cpython#106052).
_TEXT = r""""(?>(?:[^"\\\n]|\\.)*)"|'(?>[^'\n]*)'|(?>#.*)"""  # or a comment
_TEXTS = re.compile(_TEXT)
_CLOSED = re.compile(rf"(?>(?:[^\"'#]|{_TEXT})*)")


def loads(text: str) -> dict[str, Any]:
    """Raises ValueError for all that it does not read."""
    if not _CLOSED.fullmatch(text):
        raise ValueError("a text does not end on its line")
    if any(line.count(".") > _MOST_DOTS for line in _TEXTS.sub("", text).split("\n")):
        raise ValueError("a key has too many parts")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it nests too deep") from error
