"""Turns an exception into one sentence on stderr and an exit code.

0 success, 1 failure, 2 usage, 3 not found, 4 denied, 5 unreachable, 124 timeout, 130 interrupted.
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
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)  # no space left, or quota exceeded
# click's words for an integer with limits, and ours
_CLICK_INTEGER, _INTEGER = "a valid integer range", "a whole number"

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
    """Return the exit code for an error."""
    if isinstance(error, click.ClickException):
        return error.exit_code
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILURE)


def report(error: Exception, settings: Settings, arguments: Sequence[str]) -> int:
    """Print what happened and what to do. Return the exit code."""
    explained_error = errors.explain_error(error)
    if isinstance(error, click.Abort):
        click.echo(text("interrupted"), err=True)
        return INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return USAGE
    if settings.debug or "--debug" in arguments:
        traceback.print_exception(error, file=sys.stderr)
    print_error(explained_error, as_json=settings.json or _has_json_option(arguments))
    return exit_code(explained_error)


def print_error(error: Exception, *, as_json: bool, subject: str = "") -> None:
    """Print one error to stderr, as text or as JSON."""
    facts = _facts(error)
    if as_json:
        click.echo(json.dumps({"error": facts}, ensure_ascii=False), err=True)
        return
    prefix = f"hai: {subject}: " if subject else "hai: "
    click.echo(prefix + _headline(error, facts["message"]), err=True)
    for line in _details(error):
        click.echo(f"  {line}", err=True)
    if facts["hint"]:
        click.echo(f"  hint: {facts['hint']}", err=True)


def _facts(error: Exception) -> dict[str, Any]:
    """Return the fields of the error for JSON output: reason, message, hint, exit code, and its lists."""
    facts = {"reason": "INTERNAL", "message": "", "hint": "", "exit_code": exit_code(error)}
    error = errors.explain_error(error)
    match error:
        case errors.HaiError():
            facts |= {"reason": error.reason, "message": error.message, "hint": error.hint}
        case click.UsageError():
            facts |= {
                "reason": "USAGE",
                "message": _usage_message(error),
                "hint": _help_hint(error),
            }
        case click.ClickException():
            facts |= {"reason": "FAILED", "message": error.format_message()}
        case UnicodeError():
            facts |= {"reason": "USAGE", "message": f"not text in UTF-8: {error}"}
        case OSError():
            facts |= {
                "reason": "SYSTEM",
                "message": _os_error_message(error),
                "hint": _os_error_hint(error),
            }
        case _:
            facts |= {
                "message": f"internal error: {type(error).__name__}: {error}",
                "hint": "run it again with --debug and report what it prints",
            }
    return facts | _error_lists(error)


def _error_lists(error: Exception) -> dict[str, Any]:
    """Return the violations or the candidates of an error."""
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


def _headline(error: Exception, message: str) -> str:
    """Return the message without the list of violations, if there are several: each gets a line of its own."""
    if not isinstance(error, errors.Invalid) or len(error.violations) < 2:
        return message
    head = message.removesuffix(_join_violations(error))
    if head == message:
        return message
    return head.rstrip() or f"{len(error.violations)} fields are invalid:"


def _join_violations(error: errors.Invalid) -> str:
    return "; ".join(str(violation) for violation in error.violations)


def _details(error: Exception) -> list[str]:
    """Return further lines of the error: violations that the first line does not name, or candidates."""
    if isinstance(error, errors.Invalid):
        lines = [str(violation) for violation in error.violations]
        is_listed = _headline(error, error.message) != error.message
        return [line for line in lines if is_listed or line not in error.message]
    if isinstance(error, errors.Ambiguous):
        return [f"{c.id}  {c.name}  {c.user}  {c.state}" for c in error.candidates]
    return []


def _usage_message(error: click.UsageError) -> str:
    """Return click's message in the style of our own messages: in lower case, without a full stop."""
    message = error.format_message().strip().replace(_CLICK_INTEGER, _INTEGER)
    return message[:1].lower() + message[1:].removesuffix(".")


def _help_hint(error: click.UsageError) -> str:
    return f"`{error.ctx.command_path} --help` shows the usage" if error.ctx else ""


def _os_error_message(error: OSError) -> str:
    reason = error.strerror or str(error)
    if _is_cwd_removed(error):
        return text("removed")
    # An error without a file name most likely comes from stdout.
    if error.errno in _DISK_FULL and not error.filename:
        return f"cannot write: {reason}"
    return f"{error.filename}: {reason}" if error.filename else reason


def _os_error_hint(error: OSError) -> str:
    if _is_cwd_removed(error):
        return text("removed.hint")
    return text("full.hint") if error.errno in _DISK_FULL else ""


def _is_cwd_removed(error: OSError) -> bool:
    """Return True if the error comes from os.getcwd(), because the current directory was removed."""
    if not isinstance(error, FileNotFoundError) or error.filename:
        return False
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _has_json_option(arguments: Sequence[str]) -> bool:
    """Return True if the arguments ask for JSON. If parsing failed, the settings do not know it."""
    pairs = itertools.pairwise(arguments)
    return (
        "--json" in arguments
        or "--output=json" in arguments
        or "-ojson" in arguments
        or any(pair in (("-o", "json"), ("--output", "json")) for pair in pairs)
    )
