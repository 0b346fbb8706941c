"""`python -m hai_backend.sim`, which `hai simulate` runs: replays traces under policies and reports the results.

Exit codes are those of `hai`: 0 success, 1 failure (with --verify: a decision differs), 2 invalid options or files,
130 interrupted, 141 broken pipe.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from hai_backend.domain.errors import Invalid
from hai_backend.sim.cli.engine import Engine, production_engine
from hai_backend.sim.cli.experiment import Inputs, read_inputs, run
from hai_backend.sim.cli.options import STDOUT, CommandLine, Request, parse
from hai_backend.sim.cli.progress import progress_bars
from hai_backend.sim.replay.verify import format_verdict, verdicts_to_json, verify
from hai_backend.sim.report import comparison as compare
from hai_backend.sim.report.results import results_to_json
from hai_backend.sim.traces.snapshot import read_snapshot

FAILURE, USAGE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141

# Values are parsed as text, so that options.py can report every problem at once.
OPTIONS = (
    click.Argument(["traces"], nargs=-1, metavar="TRACE..."),
    click.Option(["--nodes"], multiple=True, metavar="N"),
    click.Option(["--gpus-per-node"], metavar="N"),
    click.Option(["--packed"], is_flag=True),
    click.Option(["--policy", "policies"], multiple=True, metavar="FILE"),
    click.Option(["--time-scale"], metavar="F"),
    click.Option(["--flat-priority"], is_flag=True),
    click.Option(["--format"], metavar="NAME"),
    click.Option(["--seed"], metavar="N"),
    click.Option(["--synthetic"], metavar="NAME=N,...|FILE.json"),
    click.Option(["--verify"], is_flag=True),
    click.Option(["--json"], metavar="OUT"),
    click.Option(["--report"], metavar="OUT.html"),
)
"""The options of the command. `hai simulate` has the same options and documents them."""


def main(
    argv: Sequence[str] | None = None, *, engine: Callable[[], Engine] = production_engine
) -> int:
    """Run one command line and return the exit code. Tests pass their own engine."""
    try:
        request = parse(_command_line(sys.argv[1:] if argv is None else argv))
        code = _simulate(request, engine())
        sys.stdout.flush()
        return code
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        return _print_errors([error.format_message()], USAGE)
    except Invalid as error:
        return _print_errors([str(violation) for violation in error.violations], USAGE)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        return _print_errors([f"{error.filename}: {error.strerror}"], FAILURE)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return INTERRUPTED


def _command_line(argv: Sequence[str]) -> CommandLine:
    command = click.Command(
        "simulate", params=list(OPTIONS), epilog="`hai simulate --help` tells more."
    )
    with command.make_context("hai simulate", list(argv)) as context:
        return CommandLine(**context.params)


def _simulate(request: Request, engine: Engine) -> int:
    if request.verify:
        return _verify(request)
    if request.synthetic is not None:
        _time_passes(request, request.synthetic, engine)
    else:
        _replay(request, engine, read_inputs(request, engine))
    return 0


def _time_passes(request: Request, source: Mapping[str, int] | Path, engine: Engine) -> None:
    times = engine.time_passes(source if isinstance(source, Mapping) else read_snapshot(source))
    if request.json != STDOUT:
        click.echo(
            "".join(f"{name:24} {_formatted(value)}\n" for name, value in times.items()), nl=False
        )
    _write_json(
        request,
        {"synthetic": dict(source) if isinstance(source, Mapping) else str(source), **times},
    )


def _verify(request: Request) -> int:
    """Replay recorded passes. Return 0 if every decision equals the recorded one."""
    with progress_bars(sys.stderr) as watch:
        verdicts = [verify(path, watch(path)) for path in request.traces]
    if request.json != STDOUT:
        click.echo(
            "".join(f"{line}\n" for each in verdicts for line in format_verdict(each)), nl=False
        )
    found = verdicts_to_json(verdicts)
    _write_json(request, found)
    return 0 if found["equal"] else FAILURE


def _replay(request: Request, engine: Engine, source: Inputs) -> None:
    for trace in source.traces:
        for reason, count in trace.skipped.items():
            click.echo(f"{trace.source}: left out {count}: {reason}", err=True)
    with progress_bars(sys.stderr) as watch:
        results = run(request, source, engine, watch)
    if request.json != STDOUT:
        compare.show(results, sys.stdout)
    settings = _settings(request)
    _write_json(request, results_to_json(results, settings))
    if request.report:
        from hai_backend.sim.report.html import report

        _write(request.report, report(results, settings))


def _settings(request: Request) -> dict[str, Any]:
    names = ("gpus_per_node", "packed", "time_scale", "flat_priority")
    return {name: getattr(request, name) for name in names}


def _write_json(request: Request, found: Mapping[str, Any]) -> None:
    if request.json is None:
        return
    text = json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if request.json == STDOUT:
        click.echo(text, nl=False)
    else:
        _write(request.json, text)


def _write(path: str, text: str) -> None:
    """Write a file. An error names the file; Python's own error for a full disk does not."""
    try:
        Path(path).write_text(text, "utf-8")
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _formatted(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _print_errors(messages: Sequence[str], code: int) -> int:
    """Print errors in the format of `hai`."""
    if len(messages) == 1:
        click.echo(f"hai: {messages[0]}", err=True)
        return code
    click.echo(f"hai: {len(messages)} things are not valid:", err=True)
    for message in messages:
        click.echo(f"  {message}", err=True)
    return code
