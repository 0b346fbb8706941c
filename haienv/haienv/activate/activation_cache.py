"""Caches the text that a shell evaluates, so that the next shell activates the same environment without Python.

The cached script first tests its conditions: user and root, the layer that the name refers to, and the exact texts of
all metadata; no clock and no file time is trusted. If anything differs, the script does nothing and is written again.
Only the caller can write its directory, and texts of other users are quoted as literals.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from haienv.activate.activation import Activation
from haienv.activate.shells import fish_quoted, quoted
from haienv.names import SYSTEM, Reference
from haienv.store.layout import CURRENT_LINK, METADATA_FILE, Home
from haienv.store.registry import Environment

_KEY_VARIABLES = ("HAIENV_HOME", "HAIENV_PATH", "HAIENV_USER", "XDG_DATA_HOME", "HOME")
_MAX_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class CacheConditions:
    """When a script is valid: `links` resolve to directories, `metadata_files` have these texts or do not exist."""

    variables: Mapping[str, str]
    links: Mapping[str, str]
    metadata_files: Mapping[str, str | None]
    programs: tuple[str, ...]
    directories: tuple[str, ...]


def write_cache(
    file: Path,
    shell: str,
    home: Home,
    reference: Reference,
    found: Environment,
    activation: Activation,
    text: str,
) -> None:
    """Cache a text, if possible; errors are ignored."""
    conditions = _conditions(home, reference, found, activation)
    if conditions is None:
        return
    script = _fish(conditions, text) if shell == "fish" else _posix(conditions, text)
    if len(script) <= _MAX_BYTES:
        try:
            _write(file, script)
        except OSError:
            return


def _conditions(
    home: Home, reference: Reference, found: Environment, activation: Activation
) -> CacheConditions | None:
    """None if a few files cannot show that the reference still means the same environment."""
    others = not reference.owner and found.owner not in (home.user, SYSTEM)
    others |= reference.name != found.name  # a legacy name of HAI
    several = home.other_roots and (
        found.root != home.root or not (reference.owner or found.owner == home.user)
    )
    if others or several or not Path(os.environ.get("HAIENV_HOME") or "/").is_absolute():
        return None
    before = {
        str(home.directory(home.user, reference.name) / METADATA_FILE): None
    }  # it would take precedence
    metadata_files = {**({} if reference.owner else before), **dict(activation.metadata_files)}
    if any(text is None and os.path.lexists(path) for path, text in metadata_files.items()):
        return None
    parents = found.usable.parents
    return CacheConditions(
        {name: os.environ.get(name, "") for name in _KEY_VARIABLES},
        {str(found.directory / CURRENT_LINK): str(found.path)},
        metadata_files,
        (str(found.path / "bin" / "python"),),
        tuple(str(home.layer(p.owner, p.layer)) for p in parents),
    )


def _posix(conditions: CacheConditions, text: str) -> str:
    tests = " &&\n  ".join(_posix_tests(conditions))
    return f"if {tests}; then\n_haienv_entered=yes\n{text}fi\n"


def _posix_tests(conditions: CacheConditions) -> Iterator[str]:
    for name, value in conditions.variables.items():
        yield f'[ "${{{name}-}}" = {quoted(value)} ]'
    for link, target in conditions.links.items():
        yield f"[ -L {quoted(link)} ] && [ {quoted(link)} -ef {quoted(target)} ]"
    yield from (f"[ -x {quoted(path)} ]" for path in conditions.programs)
    yield from (f"[ -d {quoted(path)} ]" for path in conditions.directories)
    for path, text in conditions.metadata_files.items():
        quoted_path = quoted(path)
        if text is None:
            yield f"[ ! -e {quoted_path} ] && [ ! -L {quoted_path} ]"
        else:
            same = f'[ "$(<{quoted_path})" = {quoted(text.rstrip(chr(10)))} ]'
            yield f"[ -f {quoted_path} ] && [ ! -L {quoted_path} ] && [ -r {quoted_path} ] && {same}"


def _fish(conditions: CacheConditions, text: str) -> str:
    tests = "\n  and ".join(_fish_tests(conditions))
    return f"if {tests}\nset _haienv_entered yes\n{text}end\n"


def _fish_tests(conditions: CacheConditions) -> Iterator[str]:
    for name, value in conditions.variables.items():
        yield f'test "${name}" = {fish_quoted(value)}'
    for link, target in conditions.links.items():
        real = fish_quoted(os.path.realpath(target))
        yield f'test -L {fish_quoted(link)}; and test "$(path resolve {fish_quoted(link)})" = {real}'
    yield from (f"test -x {fish_quoted(path)}" for path in conditions.programs)
    yield from (f"test -d {fish_quoted(path)}" for path in conditions.directories)
    for path, text in conditions.metadata_files.items():
        quoted_path = fish_quoted(path)
        if text is None:
            yield f"test ! -e {quoted_path}; and test ! -L {quoted_path}"
        else:
            same = f'test "$(string collect <{quoted_path})" = {fish_quoted(text.rstrip(chr(10)))}'
            yield f"test -f {quoted_path}; and test ! -L {quoted_path}; and test -r {quoted_path}; and {same}"


def _write(file: Path, text: str) -> None:
    """Write a file atomically, into a directory that only the caller can access."""
    folder = file.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.lstat()
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        return
    temporary = folder / f".{file.name}.{os.getpid()}"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(text)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
