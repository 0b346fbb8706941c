"""`hai demo`: shows on a private cluster that a suspended task continues as if nothing had happened."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiCommand
from hai_tui.cli.settings import Settings

if TYPE_CHECKING:
    from hai.v1.task_pb2 import TaskEvent
    from hai_tui.cli.suspend_demo.story import Results


@click.command("demo", cls=HaiCommand)
@click.pass_obj
def demo(settings: Settings) -> int:
    """Watch a training program being suspended for a more urgent one, and finish as if nothing had happened.

    A private cluster of two nodes starts in a temporary directory. `low` trains on both nodes; `high` needs
    them; `low` is asked, saves, yields, waits, comes back and finishes. The demo ends with exit code 0 only
    if the final loss of `low` equals, bit for bit, that of a run which nobody disturbed.

    \b
    Examples:
      hai demo
      hai demo --json
    """
    from hai.client.client import Client
    from hai_tui.cli.suspend_demo.chart import draw_chart
    from hai_tui.cli.suspend_demo.private_cluster import private_cluster
    from hai_tui.cli.suspend_demo.story import NODES, run_demo

    async def run() -> tuple[Results, list[str]]:
        async with Client(profile) as client:
            results, bars = await run_demo(client, home, on_event)
            return results, draw_chart(bars)

    on_event = (lambda *event: None) if settings.json else _print_event
    if not settings.json:
        click.echo(f"Starting a private cluster of {NODES} nodes …")
    with private_cluster(NODES) as (home, profile):
        results, lines = asyncio.run(run())
    if settings.json:
        click.echo(json.dumps(results.as_dict(), indent=2))
    else:
        _print_results(results, lines)
    return 0 if results.proven else 1


_PRINTED_EVENTS = frozenset(
    {
        "TaskSubmitted",
        "RunPlaced",
        "RunStarted",
        "SuspendAsked",
        "SuspendAcknowledged",
        "SuspendForced",
        "Yielded",
        "RunEnded",
        "RankLost",
        "TaskSuspended",
        "TaskFinished",
    }
)
"""The events that the demo prints; `hai events` shows all."""


def _print_event(seconds: float, name: str, event: TaskEvent) -> None:
    if event.kind not in _PRINTED_EVENTS:
        return
    rank = f" rank {event.rank}" if event.rank >= 0 else ""
    description = f"{event.kind}{rank}"
    click.echo(f"{seconds:7.2f} s  {name:<5} {description:<24} {event.actor:<10} {event.reason}")


def _print_results(results: Results, lines: list[str]) -> None:
    click.echo("\nNodes over time (L low, l low leaving, H high):\n")
    click.echo("\n".join(f"  {line}" for line in lines))
    click.echo(f"\nhigh ran {results.submitted_to_running_seconds:.2f} s after it was submitted;")
    click.echo(
        f"low had saved and yielded {results.asked_to_yielded_seconds:.2f} s after it was asked."
    )
    count = "once" if results.suspensions == 1 else f"{results.suspensions} times"
    click.echo(f"{f'final loss of low, suspended {count}:':<36}{results.final_loss}")
    click.echo(f"{'final loss of an undisturbed run:':<36}{results.undisturbed_loss}")
    verdict = (
        "PROVEN: equal bit for bit" if results.proven else "NOT PROVEN: see the timeline above"
    )
    click.echo(verdict)
