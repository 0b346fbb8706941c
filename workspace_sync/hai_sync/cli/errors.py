"""Prints exceptions to stderr and returns exit codes, as the `hai` command does.

0 ok, 1 failure (conflicts, problems, refused plans too), 2 usage, 3 not found, 4 denied,
5 unreachable, 124 time-out, 130 interrupted, 141 stdout was closed.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence

import click

from hai_sync.error_mapping import Failure, map_error


def run(group: click.Group, arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    try:
        with group.make_context("haiworkspace", list(arguments)) as context:
            result = group.invoke(context)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo(
            "interrupted; received files are kept; run the command again to resume", err=True
        )
        return 130
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except BrokenPipeError:
        raise  # `main` handles a closed stdout
    except Exception as error:
        return print_error(error, arguments)


def print_error(error: Exception, arguments: Sequence[str]) -> int:
    """Print an error and return its exit code."""
    if "--debug" in arguments:
        traceback.print_exception(error, file=sys.stderr)
    failure = _failure(error)
    if "--json" in arguments:
        click.echo(json.dumps({"event": "error", "error": failure._asdict()}), err=True)
        return failure.exit_code
    click.echo(f"haiworkspace: {failure.message}", err=True)
    if failure.hint:
        click.echo(f"  hint: {failure.hint}", err=True)
    return failure.exit_code


def _failure(error: Exception) -> Failure:
    if isinstance(error, click.ClickException):
        hint = "`--help` shows the usage"
        return Failure(error.format_message(), hint, "USAGE", error.exit_code)
    return map_error(error)
