"""From an exception to one sentence on stderr and an exit code.

0 ok, 1 failure, 2 usage, 3 not found, 4 denied, 5 unreachable, 124 time-out, 130 interrupted.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from hai.client import errors
from hai_tui.cli.settings import Settings
from hai_tui.i18n import text

FAILURE, USAGE, INTERRUPTED = 1, 2, 130
_FULL = (errno.ENOSPC, errno.EDQUOT)
_INTEGER = ("a valid integer range", "a whole number")  # click's words, ours

_CODES: tuple[tuple[type[Exception], int], ...] = (
    (errors.NotFound, 3),
    (errors.Denied, 4),
    (errors.Unauthenticated, 4),
    (errors.Unreachable, 5),
    (errors.TimedOut, 124),
    (errors.Invalid, USAGE),
    (errors.Ambiguous, USAGE),
    (errors.UsageError, USAGE),
    (UnicodeError, USAGE),
)


def exit_code(error: BaseException) -> int:
    """The exit code that stands for an error."""
    if isinstance(error, click.ClickException):
        return error.exit_code
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILURE)


def report(error: Exception, settings: Settings, arguments: Sequence[str]) -> int:
    """Say what happened and what to do; the answer is the exit code."""
    explained_error = errors.explain_error(error)
    if isinstance(error, click.Abort):
        click.echo(text("interrupted"), err=True)
        return INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return USAGE
    if settings.debug or "--debug" in arguments:
        traceback.print_exception(error, file=sys.stderr)
    print_error(explained_error, as_json=settings.json or _asks_for_json(arguments))
    return exit_code(explained_error)


def print_error(error: Exception, *, as_json: bool, subject: str = "") -> None:
    """One error on stderr, for a person or for a program."""
    facts = _facts(error)
    if as_json:
        click.echo(json.dumps({"error": facts}, ensure_ascii=False), err=True)
        return
    prefix = f"hai: {subject}: " if subject else "hai: "
    click.echo(prefix + _head(error, facts["message"]), err=True)
    for line in _details(error):
        click.echo(f"  {line}", err=True)
    if facts["hint"]:
        click.echo(f"  hint: {facts['hint']}", err=True)


def _facts(error: Exception) -> dict[str, Any]:
    facts = {"reason": "INTERNAL", "message": "", "hint": "", "exit_code": exit_code(error)}
    error = errors.explain_error(error)
    match error:
        case errors.HaiError():
            facts |= {"reason": error.reason, "message": error.message, "hint": error.hint}
        case click.UsageError():
            facts |= {"reason": "USAGE", "message": _sentence(error), "hint": _help_hint(error)}
        case click.ClickException():
            facts |= {"reason": "FAILED", "message": error.format_message()}
        case UnicodeError():
            facts |= {"reason": "USAGE", "message": f"not text in UTF-8: {error}"}
        case OSError():
            facts |= {"reason": "SYSTEM", "message": _system(error), "hint": _system_hint(error)}
        case _:
            facts |= {
                "message": f"internal error: {type(error).__name__}: {error}",
                "hint": "run it again with --debug and report what it prints",
            }
    return facts | _lists(error)


def _lists(error: Exception) -> dict[str, Any]:
    if isinstance(error, errors.Invalid):
        return {
            "violations": [
                {"field": v.field, "message": v.message, "line": v.line, "column": v.column}
                for v in error.violations
            ]
        }
    if isinstance(error, errors.Ambiguous):
        return {
            "candidates": [
                {"id": c.id, "name": c.name, "user": c.user, "state": c.state}
                for c in error.candidates
            ]
        }
    return {}


def _head(error: Exception, message: str) -> str:
    """The message; of several violations only what stands before them, each has its own line."""
    if not isinstance(error, errors.Invalid) or len(error.violations) < 2:
        return message
    before = message.removesuffix(_joined(error))
    if before == message:
        return message
    return before.rstrip() or f"{len(error.violations)} things are not valid:"


def _joined(error: errors.Invalid) -> str:
    return "; ".join(str(violation) for violation in error.violations)


def _details(error: Exception) -> list[str]:
    if isinstance(error, errors.Invalid):
        lines = [str(violation) for violation in error.violations]
        listed = _head(error, error.message) != error.message
        return [line for line in lines if listed or line not in error.message]
    if isinstance(error, errors.Ambiguous):
        return [f"{c.id}  {c.name}  {c.user}  {c.state}" for c in error.candidates]
    return []


def _sentence(error: click.UsageError) -> str:
    message = error.format_message().strip().replace(*_INTEGER)
    return message[:1].lower() + message[1:].removesuffix(".")


def _help_hint(error: click.UsageError) -> str:
    return f"`{error.ctx.command_path} --help` shows how it is used" if error.ctx else ""


def _system(error: OSError) -> str:
    what = error.strerror or str(error)
    if _nowhere(error):
        return text("removed")
    if error.errno in _FULL and not error.filename:  # mostly the output
        return f"cannot write: {what}"
    return f"{error.filename}: {what}" if error.filename else what


def _system_hint(error: OSError) -> str:
    if _nowhere(error):
        return text("removed.hint")
    return text("full.hint") if error.errno in _FULL else ""


def _nowhere(error: OSError) -> bool:
    """The working directory is gone: os.getcwd() then names no file."""
    if not isinstance(error, FileNotFoundError) or error.filename:
        return False
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """True when the options ask for JSON although they could not be parsed."""
    pairs = itertools.pairwise(arguments)
    return (
        "--json" in arguments
        or "--output=json" in arguments
        or "-ojson" in arguments
        or any(pair in (("-o", "json"), ("--output", "json")) for pair in pairs)
    )
