"""Reads TOML from untrusted sources. It refuses texts for which Python's parser would need gigabytes. Pure.

That parser needs time and memory quadratic in the number of parts of a dotted key: a key of 250 KB takes 60 GB. The
limits suffice for the files of haienv, which have keys with two parts and strings of one line. This module imports no
other module of ours, so every package may use it.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

_MOST_DOTS = 16  # limit for one line, outside of strings
# Atomic groups, because possessive quantifiers are wrong before Python 3.11.4 (cpython#106052).
_TEXT = r""""(?>(?:[^"\\\n]|\\.)*)"|'(?>[^'\n]*)'|(?>#.*)"""  # a string or a comment
_TEXTS = re.compile(_TEXT)
_CLOSED = re.compile(rf"(?>(?:[^\"'#]|{_TEXT})*)")


def loads(text: str) -> dict[str, Any]:
    """Parse a TOML document. Raises ValueError if it is not valid or is refused."""
    if not _CLOSED.fullmatch(text):
        raise ValueError("a text does not end on its line")
    if any(line.count(".") > _MOST_DOTS for line in _TEXTS.sub("", text).split("\n")):
        raise ValueError("a key has too many parts")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it nests too deep") from error
