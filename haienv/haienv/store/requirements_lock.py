"""Parses and writes locks: pins with hashes, after headers for the Python and the base. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from hai.redaction import without_credentials
from haienv.digests import hash_text

_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;]+)")
_DIRECT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*@\s*(\S+)")
_HEADER = re.compile(r"# (python|parent|sites) (\S+)")
_ANY_FORMAT = "# haienv lock "
_FIRST_LINE = f"{_ANY_FORMAT}1"


@dataclass(frozen=True, slots=True)
class Pin:
    """One distribution of a lock. `line` is the complete requirement with hashes."""

    name: str
    version: str
    line: str

    @property
    def text(self) -> str:
        """The pin without hashes, as in numpy==2.1."""
        return f"{self.name}=={self.version}"

    @property
    def redacted(self) -> Pin:
        """The pin without credentials in its URL. Only this form is stored."""
        version, line = without_credentials(self.version), without_credentials(self.line)
        return Pin(self.name, version, line)


@dataclass(frozen=True, slots=True)
class Lock:
    """The pins of a layer. `parent` is the lock hash of its parent, `sites` the hash of an extended Python."""

    python: str
    pins: tuple[Pin, ...] = ()
    parent: str = ""
    sites: str = ""

    @property
    def text(self) -> str:
        lines = [_FIRST_LINE, f"# python {self.python}"]
        lines += [f"# parent sha256:{self.parent}"] if self.parent else []
        lines += [f"# sites sha256:{self.sites}"] if self.sites else []
        return "\n".join([*lines, *(pin.line for pin in self.pins)]) + "\n"

    @property
    def hash(self) -> str:
        return hash_text(self.text)


def normalize_name(name: str) -> str:
    """Return the canonical spelling of the name of a distribution."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_pins(text: str) -> tuple[Pin, ...]:
    """Return the pins of a text with requirements, sorted by name; other lines are skipped."""
    pins = filter(None, map(parse_pin, split_logical_lines(text)))
    return tuple(sorted(pins, key=lambda pin: pin.name))


def parse_pin(line: str) -> Pin | None:
    """Parse a line; None if it is not a pin."""
    match = _PIN.match(line) or _DIRECT.match(line)
    return Pin(normalize_name(match[1]), match[2], line) if match else None


def split_logical_lines(text: str) -> Iterable[str]:
    """Return the lines without comments and blank lines, with continuation lines joined and whitespace collapsed."""
    joined = re.sub(r"\\\s*\n", " ", text)
    lines = (re.sub(r"(^|\s)#.*$", "", line) for line in joined.splitlines())
    return (" ".join(line.split()) for line in lines if line.strip())


def is_newer_format(text: str) -> bool:
    """Return True for a lock in an unsupported, newer format."""
    return text.startswith(_ANY_FORMAT) and parse_lock(text) is None


def parse_lock(text: str) -> Lock | None:
    """Parse a lock; None if the text is not a lock of haienv."""
    if text.partition("\n")[0].rstrip() != _FIRST_LINE:
        return None
    matches = (_HEADER.match(line) for line in text.splitlines())
    headers = {match[1]: match[2] for match in matches if match}
    return Lock(
        python=headers.get("python", ""),
        pins=parse_pins(text),
        parent=headers.get("parent", "").removeprefix("sha256:"),
        sites=headers.get("sites", "").removeprefix("sha256:"),
    )
