"""Caches the script that a shell evaluates, so that the next shell activates the same environment without Python.

The cached script first tests its conditions: user and root, the layer that the name refers to, and the exact texts of
all metadata files. It trusts neither clocks nor times of files. If a condition fails, the script does nothing, and
haienv writes it again. Only the caller can write the directory of the cache, and texts of other users are quoted as
literals.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from haienv.activate.activation import Activation
from haienv.activate.shells import quote, quote_fish
from haienv.names import SYSTEM, Reference
from haienv.store.layout import CURRENT_LINK, METADATA_FILE, Home
from haienv.store.registry import Environment

_KEY_VARIABLES = ("HAIENV_HOME", "HAIENV_PATH", "HAIENV_USER", "XDG_DATA_HOME", "HOME")
_MAX_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class CacheConditions:
    """The conditions under which a script is valid.

    Variables have these values, links resolve to these directories, and metadata files have these texts, or do not
    exist if the text is None. Programs and directories exist.
    """

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
    environment: Environment,
    activation: Activation,
    script: str,
) -> None:
    """Cache a script if that is possible. Errors are ignored."""
    conditions = _conditions(home, reference, environment, activation)
    if conditions is None:
        return
    add_conditions = _fish_script if shell == "fish" else _posix_script
    text = add_conditions(conditions, script)
    if len(text) <= _MAX_BYTES:
        with suppress(OSError):
            _write(file, text)


def _conditions(
    home: Home, reference: Reference, environment: Environment, activation: Activation
) -> CacheConditions | None:
    """Return the conditions; None if tests of a few files cannot show that the reference means the same environment."""
    is_implied_user = not reference.owner and environment.owner not in (home.user, SYSTEM)
    is_legacy_name = reference.name != environment.name
    spans_roots = home.other_roots and (
        environment.root != home.root or not (reference.owner or environment.owner == home.user)
    )
    is_relative_home = not Path(os.environ.get("HAIENV_HOME") or "/").is_absolute()
    if is_implied_user or is_legacy_name or spans_roots or is_relative_home:
        return None
    # An environment of the caller would precede one of the system.
    preceding = {str(home.directory(home.user, reference.name) / METADATA_FILE): None}
    metadata_files = {**({} if reference.owner else preceding), **dict(activation.metadata_files)}
    if any(text is None and os.path.lexists(path) for path, text in metadata_files.items()):
        return None
    parents = environment.usable_layer.parents
    return CacheConditions(
        {name: os.environ.get(name, "") for name in _KEY_VARIABLES},
        {str(environment.directory / CURRENT_LINK): str(environment.path)},
        metadata_files,
        (str(environment.path / "bin" / "python"),),
        tuple(str(home.layer(p.owner, p.layer)) for p in parents),
    )


def _posix_script(conditions: CacheConditions, script: str) -> str:
    """Return a script for bash and zsh that runs `script` only if the conditions are met."""
    tests = " &&\n  ".join(_posix_tests(conditions))
    return f"if {tests}; then\n_haienv_entered=yes\n{script}fi\n"


def _posix_tests(conditions: CacheConditions) -> Iterator[str]:
    """Yield tests for bash and zsh that hold only if the conditions are met."""
    for name, value in conditions.variables.items():
        yield f'[ "${{{name}-}}" = {quote(value)} ]'
    for link, target in conditions.links.items():
        yield f"[ -L {quote(link)} ] && [ {quote(link)} -ef {quote(target)} ]"
    yield from (f"[ -x {quote(path)} ]" for path in conditions.programs)
    yield from (f"[ -d {quote(path)} ]" for path in conditions.directories)
    for path, text in conditions.metadata_files.items():
        quoted_path = quote(path)
        if text is None:
            yield f"[ ! -e {quoted_path} ] && [ ! -L {quoted_path} ]"
        else:
            same = f'[ "$(<{quoted_path})" = {quote(text.rstrip(chr(10)))} ]'
            yield f"[ -f {quoted_path} ] && [ ! -L {quoted_path} ] && [ -r {quoted_path} ] && {same}"


def _fish_script(conditions: CacheConditions, script: str) -> str:
    """Return a script for fish that runs `script` only if the conditions are met."""
    tests = "\n  and ".join(_fish_tests(conditions))
    return f"if {tests}\nset _haienv_entered yes\n{script}end\n"


def _fish_tests(conditions: CacheConditions) -> Iterator[str]:
    """Yield tests for fish that hold only if the conditions are met."""
    for name, value in conditions.variables.items():
        yield f'test "${name}" = {quote_fish(value)}'
    for link, target in conditions.links.items():
        real = quote_fish(os.path.realpath(target))
        yield f'test -L {quote_fish(link)}; and test "$(path resolve {quote_fish(link)})" = {real}'
    yield from (f"test -x {quote_fish(path)}" for path in conditions.programs)
    yield from (f"test -d {quote_fish(path)}" for path in conditions.directories)
    for path, text in conditions.metadata_files.items():
        quoted_path = quote_fish(path)
        if text is None:
            yield f"test ! -e {quoted_path}; and test ! -L {quoted_path}"
        else:
            same = f'test "$(string collect <{quoted_path})" = {quote_fish(text.rstrip(chr(10)))}'
            yield f"test -f {quoted_path}; and test ! -L {quoted_path}; and test -r {quoted_path}; and {same}"


def _write(file: Path, text: str) -> None:
    """Write a file atomically, but only into a directory that nobody but the caller can access."""
    folder = file.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        return
    temporary = folder / f".{file.name}.{os.getpid()}"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(text)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
