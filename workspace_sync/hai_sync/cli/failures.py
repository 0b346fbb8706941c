"""From an exception to a sentence on stderr and an exit code, as the `hai` command has them.

0 ok, 1 failure (conflicts, problems, refused plans too), 2 usage, 3 not found, 4 denied,
5 unreachable, 124 time-out, 130 interrupted, 141 nobody reads what is printed.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import traceback
from collections.abc import Sequence

import click

from hai.client import errors
from hai_sync.place import data_directory

_CODES: tuple[tuple[type[Exception], int], ...] = (
    (errors.NotFound, 3),
    (errors.Denied, 4),
    (errors.Unauthenticated, 4),
    (errors.Unreachable, 5),
    (errors.TimedOut, 124),
    (TimeoutError, 124),
    (errors.Invalid, 2),
    (errors.UsageError, 2),
)


def run(group: click.Group, arguments: Sequence[str]) -> int:
    """Run a command line; the exit code is returned."""
    try:
        with group.make_context("haiworkspace", list(arguments)) as context:
            result = group.invoke(context)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted; what has arrived is kept, do it again to go on", err=True)
        return 130
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except BrokenPipeError:
        raise  # whoever read what we print has enough of it
    except Exception as error:
        return tell(error, arguments)


def tell(error: Exception, arguments: Sequence[str]) -> int:
    """What happened, and what to do."""
    if "--debug" in arguments:
        traceback.print_exception(error, file=sys.stderr)
    message, hint, reason = _words(error)
    code = exit_code(error)
    if "--json" in arguments:
        facts = {"reason": reason, "message": message, "hint": hint, "exit_code": code}
        click.echo(json.dumps({"event": "error", "error": facts}), err=True)
        return code
    click.echo(f"haiworkspace: {message}", err=True)
    if hint:
        click.echo(f"  hint: {hint}", err=True)
    return code


def exit_code(error: Exception) -> int:
    """The exit code that stands for an error."""
    if isinstance(error, click.ClickException):
        return error.exit_code
    return next((code for kind, code in _CODES if isinstance(error, kind)), 1)


def _words(error: Exception) -> tuple[str, str, str]:
    error = errors.explained(error)
    if isinstance(error, errors.HaiError):
        return error.message, error.hint, error.reason
    if isinstance(error, click.ClickException):
        return error.format_message(), "`--help` shows how it is used", "USAGE"
    if isinstance(error, OSError) and not isinstance(error, TimeoutError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", "", "SYSTEM"
    if isinstance(error, sqlite3.OperationalError):
        hint = "nothing is lost; see to that and do it again"
        return f"what is remembered in {data_directory()} cannot be used: {error}", hint, "SYSTEM"
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("hai"):
        hint = "what syncs comes with it: pip install 'hai-platform[sync]'"
        return f"{error.name} is not installed", hint, "NOT_INSTALLED"
    if isinstance(error, TimeoutError):
        return "it took longer than --sync_timeout; do it again to go on", "", "TIMED_OUT"
    hint = "run it again with --debug and report what it prints"
    return f"internal error: {type(error).__name__}: {error}", hint, "INTERNAL"
