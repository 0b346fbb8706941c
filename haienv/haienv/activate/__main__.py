"""`python -m haienv.activate SHELL NAME`: prints what the shell evaluates. Loads little: people wait for it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from haienv.activate.activation import activation
from haienv.activate.shells import SHELLS, text_for
from haienv.errors import EnvError, UsageError
from haienv.layout import home
from haienv.names import Reference, parse_reference
from haienv.registry import find

_USAGE = "source haienv NAME[USER]   (or NAME -u USER)"


def main(arguments: Sequence[str]) -> int:
    """The exit code; the text goes to standard output."""
    try:
        shell, reference = _parse(arguments)
        here = home()
        found = find(here, reference)
        sys.stdout.write(text_for(shell, activation(here, found, follow=True)))
        if found.label.deprecated:
            print(f"haienv: {found} is deprecated: {found.label.deprecated}", file=sys.stderr)
    except EnvError as error:
        hint = f"\n  hint: {error.hint}" if error.hint else ""
        print(f"haienv: {error.message}{hint}", file=sys.stderr)
        return error.code
    return 0


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
