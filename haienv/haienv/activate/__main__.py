"""`python -m haienv.activate [--keep FILE] SHELL NAME`: prints the text for a shell to evaluate. It must start fast."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from haienv.activate.activation import activation
from haienv.activate.activation_cache import write_cache
from haienv.activate.shells import SHELLS, text_for
from haienv.errors import EnvError, UsageError
from haienv.names import Reference, parse_reference
from haienv.store.layout import home
from haienv.store.registry import find

_USAGE = "source haienv NAME[USER]   (or NAME -u USER)"


def main(arguments: Sequence[str]) -> int:
    """Print the text to standard output, and return the exit code."""
    file, remaining = _split_cache_option(arguments)
    try:
        sys.stdout.write(_text(file, *_parse(remaining)))
    except EnvError as error:
        hint = f"\n  hint: {error.hint}" if error.hint else ""
        print(f"haienv: {error.message}{hint}", file=sys.stderr)
        return error.code
    return 0


def _text(file: str, shell: str, reference: Reference) -> str:
    here = home()
    found = find(here, reference)
    entered = activation(here, found, follow=True)
    text = text_for(shell, entered)
    if file:
        write_cache(Path(file), shell, here, reference, found, entered, text)
    return text


def _split_cache_option(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The cache file (empty if there is none), and the remaining arguments."""
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
