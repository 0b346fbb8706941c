"""`hai simulate`: replays job traces through the server's scheduler, in a process of the server's package.

The options are passed on as the user typed them. The simulator checks them, so that it can report all errors at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import NoReturn

import click

from hai_tui.cli.command import COMMON, HaiCommand
from hai_tui.cli.server.local_server import REQUIRED_MODULE
from hai_tui.cli.settings import Settings

MODULE = "hai_backend.sim"
"""Run as a program, never imported: the command works without the server's packages."""

_FLAGS = {"policies": "policy"}

Value = str | bool | tuple[str, ...] | None


class _SimulateCommand(HaiCommand):
    """Its own --json names a file and replaces the common option."""

    @property
    def common(self) -> tuple[click.Option, ...]:
        return tuple(option for option in COMMON if option.name != "json")


@click.command("simulate", cls=_SimulateCommand)
@click.argument("traces", nargs=-1, metavar="TRACE...", type=click.Path())
@click.option(
    "--nodes", multiple=True, metavar="N", help="Nodes of the cluster; repeat to compare."
)
@click.option("--gpus-per-node", metavar="N", help="GPUs of each node.  [default: 8]")
@click.option("--packed", is_flag=True, help="Tasks smaller than a node share nodes.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="FILE",
    type=click.Path(),
    help="TOML, JSON or YAML; repeat to compare.",
)
@click.option("--time-scale", metavar="F", help="Let the jobs come F times as fast.  [default: 1]")
@click.option("--flat-priority", is_flag=True, help="Treat all jobs as NORMAL.")
@click.option("--format", metavar="NAME", help="csv, sacct, swf, …, if it is not recognised.")
@click.option("--seed", metavar="N", help="Of the run times drawn for a snapshot.  [default: 1]")
@click.option(
    "--synthetic",
    metavar="NAME=N,...|FILE.json",
    help="Time scheduling passes instead: nodes, waiting, running, users, groups, or a snapshot.",
)
@click.option("--verify", is_flag=True, help="Check the decisions of logs of a server instead.")
@click.option("--json", metavar="OUT", type=click.Path(), help="Write the figures to a file or -.")
@click.option("--report", metavar="OUT.html", type=click.Path(), help="Write a page with plots.")
@click.pass_obj
def simulate(settings: Settings, /, **options: Value) -> NoReturn:
    """Replay job traces through the scheduler on a virtual clock, and compare policies and clusters.

    TRACE is a CSV (one job per line), what `sacct --parsable2` prints, SWF, what `hai admin
    snapshot` writes, or a log of decisions of a server; gzipped or not.
    Every trace is replayed for every --nodes and every --policy. The table goes to standard output,
    with --json OUT the figures as JSON to a file, or to - (then no table is printed).

    \b
    Examples:
      hai simulate jobs.csv.gz --nodes 117
      hai simulate jobs.csv --nodes 64 --nodes 96 --report report.html
      hai simulate jobs.csv --nodes 64 --policy a.toml --policy b.toml
      hai simulate --synthetic nodes=10000,waiting=100000 --json passes.json
      hai simulate decisions.jsonl --verify
    """
    if find_spec(REQUIRED_MODULE) is None:
        raise click.ClickException(
            "the simulator is not installed: pip install 'hai-platform[backend]'"
        )
    if settings.json and not options["json"]:  # --json stands before `simulate`
        options["json"] = "-"
    environment = os.environ if settings.color else {**os.environ, "NO_COLOR": "1"}
    # With -P, a file json.py in the current directory does not replace the module json
    command = [sys.executable, "-P", "-m", MODULE, *_arguments(options)]
    sys.stdout.flush()
    os.execve(command[0], command, environment)


def _arguments(options: Mapping[str, Value]) -> Iterator[str]:
    """Yield the options as they were typed, then the traces after `--`."""
    for name, value in options.items():
        flag = f"--{_FLAGS.get(name, name).replace('_', '-')}"
        if value is True:
            yield flag
        elif value and name != "traces":
            yield from (f"{flag}={each}" for each in _as_tuple(value))
    yield from ("--", *_as_tuple(options["traces"]))


def _as_tuple(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else (str(value),)
