"""The format of locks: pins with hashes, after headers for the Python and the base. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from hai.redaction import without_credentials

_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;]+)")
_DIRECT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*@\s*(\S+)")
_HEADER = re.compile(r"# (python|parent|sites) (\S+)")
_KIND = "# haienv lock "
_FIRST = f"{_KIND}1"


@dataclass(frozen=True, slots=True)
class Pin:
    """One distribution of a lock. `line` is the complete requirement, with hashes."""

    name: str
    version: str
    line: str

    @property
    def text(self) -> str:
        """As in numpy==2.1, without hashes."""
        return f"{self.name}=={self.version}"

    @property
    def redacted(self) -> Pin:
        """The pin without credentials in its URL, to be stored."""
        version, line = without_credentials(self.version), without_credentials(self.line)
        return Pin(self.name, version, line)


@dataclass(frozen=True, slots=True)
class Lock:
    """The pins of a layer; `parent` is the lock hash of its parent, `sites` the hash of an extended Python."""

    python: str
    pins: tuple[Pin, ...] = ()
    parent: str = ""
    sites: str = ""

    @property
    def text(self) -> str:
        head = [_FIRST, f"# python {self.python}"]
        head += [f"# parent sha256:{self.parent}"] if self.parent else []
        head += [f"# sites sha256:{self.sites}"] if self.sites else []
        return "\n".join([*head, *(pin.line for pin in self.pins)]) + "\n"

    @property
    def hash(self) -> str:
        return sha256_hex(self.text)


def sha256_hex(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def normalize_name(name: str) -> str:
    """The canonical spelling of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_pins(text: str) -> tuple[Pin, ...]:
    """The pins of a text with requirements, sorted by name; other lines are skipped."""
    found = (parse_pin(line) for line in logical_lines(text))
    return tuple(sorted((pin for pin in found if pin), key=lambda pin: pin.name))


def parse_pin(line: str) -> Pin | None:
    """Parse a line; None if it is not a pin."""
    shape = _PIN.match(line) or _DIRECT.match(line)
    return Pin(normalize_name(shape[1]), shape[2], line) if shape else None


def logical_lines(text: str) -> Iterable[str]:
    """Lines without comments, with continuations joined and whitespace collapsed."""
    joined = re.sub(r"\\\s*\n", " ", text)
    lines = (re.sub(r"(^|\s)#.*$", "", line) for line in joined.splitlines())
    return (" ".join(line.split()) for line in lines if line.strip())


def is_newer_format(text: str) -> bool:
    """True for a lock in an unsupported, newer format."""
    return text.startswith(_KIND) and parse_lock(text) is None


def parse_lock(text: str) -> Lock | None:
    """Parse a lock; None if the text is not a lock of haienv."""
    if text.partition("\n")[0].rstrip() != _FIRST:
        return None
    found = (_HEADER.match(line) for line in text.splitlines())
    heads = {each[1]: each[2] for each in found if each}
    return Lock(
        python=heads.get("python", ""),
        pins=parse_pins(text),
        parent=heads.get("parent", "").removeprefix("sha256:"),
        sites=heads.get("sites", "").removeprefix("sha256:"),
    )
