"""`python -m haienv.activate [--keep FILE] SHELL NAME` prints the script that a shell evaluates. It must start fast."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from haienv.activate.activation import compute_activation
from haienv.activate.activation_cache import write_cache
from haienv.activate.shells import SHELLS, activation_script
from haienv.errors import EnvError, UsageError
from haienv.names import Reference, parse_reference
from haienv.store.layout import Home
from haienv.store.registry import find_by_reference

_USAGE = "source haienv NAME[USER]   (or NAME -u USER)"


def main(arguments: Sequence[str]) -> int:
    """Print the script to standard output, and return the exit code."""
    file, remaining = _split_cache_option(arguments)
    try:
        sys.stdout.write(_make_script(file, *_parse(remaining)))
    except EnvError as error:
        hint = f"\n  hint: {error.hint}" if error.hint else ""
        print(f"haienv: {error.message}{hint}", file=sys.stderr)
        return error.code
    return 0


def _make_script(file: str, shell: str, reference: Reference) -> str:
    home = Home.from_environ()
    environment = find_by_reference(home, reference)
    activation = compute_activation(home, environment, follow=True)
    script = activation_script(shell, activation)
    if file:
        write_cache(Path(file), shell, home, reference, environment, activation, script)
    return script


def _split_cache_option(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the file for the cache (empty if there is none), and the remaining arguments."""
    if len(arguments) > 1 and arguments[0] == "--keep":
        return arguments[1], arguments[2:]
    return "", arguments


def _parse(arguments: Sequence[str]) -> tuple[str, Reference]:
    match list(arguments):
        case [shell, name] if shell in SHELLS:
            return shell, parse_reference(name)
        case [shell, name, "-u" | "--user", user] if shell in SHELLS:
            return shell, parse_reference(name, user)
        case [shell, "-u" | "--user", user, name] if shell in SHELLS:
            return shell, parse_reference(name, user)
    raise UsageError("which environment?", _USAGE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
