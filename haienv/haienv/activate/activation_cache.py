"""What a shell evaluated, kept in a file, so that the next shell enters the same environment without any Python.

The file says first what must still be so: who asks, and where; which layer the name means; the labels that count,
word for word, so no clock and no time of a file is trusted. When anything is different, the file does nothing, and it
is made anew. It lies in a directory that only the caller may write; what others wrote stands in it as literals.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from haienv.activate.activation import Activation
from haienv.activate.shells import fish_quoted, quoted
from haienv.names import SYSTEM, Reference
from haienv.store.layout import CURRENT, LABEL, Home
from haienv.store.registry import Environment

_ASKED = ("HAIENV_HOME", "HAIENV_PATH", "HAIENV_USER", "XDG_DATA_HOME", "HOME")
_MOST = 32 * 1024


@dataclass(frozen=True, slots=True)
class Conditions:
    """What must be so. `links` lead to directories, `labels` have texts, or are not there."""

    variables: Mapping[str, str]
    links: Mapping[str, str]
    labels: Mapping[str, str | None]
    programs: tuple[str, ...]
    directories: tuple[str, ...]


def keep(
    file: Path,
    shell: str,
    home: Home,
    asked: Reference,
    found: Environment,
    entered: Activation,
    text: str,
) -> None:
    """Keep a text for the next time; nothing happens where that cannot be."""
    conditions = _conditions(home, asked, found, entered)
    if conditions is None:
        return
    kept = _fish(conditions, text) if shell == "fish" else _posix(conditions, text)
    if len(kept) <= _MOST:
        try:
            _write(file, kept)
        except OSError:
            return


def _conditions(
    home: Home, asked: Reference, found: Environment, entered: Activation
) -> Conditions | None:
    """None: it cannot be told by looking at a few files."""
    others = not asked.owner and found.owner not in (home.user, SYSTEM)
    others |= asked.name != found.name  # as HAI called it
    several = home.others and (
        found.root != home.root or not (asked.owner or found.owner == home.user)
    )
    if others or several or not Path(os.environ.get("HAIENV_HOME") or "/").is_absolute():
        return None
    before = {str(home.directory(home.user, asked.name) / LABEL): None}  # it would be meant instead
    labels = {**({} if asked.owner else before), **dict(entered.labels)}
    if any(text is None and os.path.lexists(path) for path, text in labels.items()):
        return None
    parents = found.usable.parents
    return Conditions(
        {name: os.environ.get(name, "") for name in _ASKED},
        {str(found.directory / CURRENT): str(found.path)},
        labels,
        (str(found.path / "bin" / "python"),),
        tuple(str(home.layer(p.owner, p.layer)) for p in parents),
    )


def _posix(conditions: Conditions, text: str) -> str:
    tests = " &&\n  ".join(_tests(conditions))
    return f"if {tests}; then\n_haienv_entered=yes\n{text}fi\n"


def _tests(conditions: Conditions) -> Iterator[str]:
    for name, value in conditions.variables.items():
        yield f'[ "${{{name}-}}" = {quoted(value)} ]'
    for link, place in conditions.links.items():
        yield f"[ -L {quoted(link)} ] && [ {quoted(link)} -ef {quoted(place)} ]"
    yield from (f"[ -x {quoted(path)} ]" for path in conditions.programs)
    yield from (f"[ -d {quoted(path)} ]" for path in conditions.directories)
    for path, text in conditions.labels.items():
        here = quoted(path)
        if text is None:
            yield f"[ ! -e {here} ] && [ ! -L {here} ]"
        else:
            same = f'[ "$(<{here})" = {quoted(text.rstrip(chr(10)))} ]'
            yield f"[ -f {here} ] && [ ! -L {here} ] && [ -r {here} ] && {same}"


def _fish(conditions: Conditions, text: str) -> str:
    tests = "\n  and ".join(_fish_tests(conditions))
    return f"if {tests}\nset _haienv_entered yes\n{text}end\n"


def _fish_tests(conditions: Conditions) -> Iterator[str]:
    for name, value in conditions.variables.items():
        yield f'test "${name}" = {fish_quoted(value)}'
    for link, place in conditions.links.items():
        real = fish_quoted(os.path.realpath(place))
        yield f'test -L {fish_quoted(link)}; and test "$(path resolve {fish_quoted(link)})" = {real}'
    yield from (f"test -x {fish_quoted(path)}" for path in conditions.programs)
    yield from (f"test -d {fish_quoted(path)}" for path in conditions.directories)
    for path, text in conditions.labels.items():
        here = fish_quoted(path)
        if text is None:
            yield f"test ! -e {here}; and test ! -L {here}"
        else:
            same = f'test "$(string collect <{here})" = {fish_quoted(text.rstrip(chr(10)))}'
            yield f"test -f {here}; and test ! -L {here}; and test -r {here}; and {same}"


def _write(file: Path, text: str) -> None:
    """As a whole, and only into a directory that is the caller's alone."""
    folder = file.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.lstat()
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        return
    beside = folder / f".{file.name}.{os.getpid()}"
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(text)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)
