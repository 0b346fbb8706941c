"""`hai list`: tasks, filtered, sorted, page by page, or live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from hai.client.tasks.filters import quote
from hai.task.levels import PRIORITIES
from hai_tui.cli.command import TableCommand
from hai_tui.cli.completion import complete_groups, complete_users
from hai_tui.cli.output.output import note, note_warnings, show
from hai_tui.cli.settings import Settings, with_client
from hai_tui.formatting.values import Priority
from hai_tui.i18n import text
from hai_tui.name_warnings import filter_warnings
from hai_tui.views.tasks import TASKS

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.task_pb2 import Task
    from hai.v1.task_service_pb2 import ListTasksResponse

_STATES = ["waiting_init", "running", "suspended", "finished"]
_OUTCOMES = ["succeeded", "failed", "stopped", "canceled"]
_TERMS = ("state", "outcome", "user", "group", "tag", "name")


@click.command("list", cls=TableCommand)
@click.argument("filter", nargs=-1)
@click.option("-s", "--state", metavar="A,B", help=f"One or more of {', '.join(_STATES)}.")
@click.option("--outcome", metavar="A,B", help=f"One or more of {', '.join(_OUTCOMES)}.")
@click.option("-u", "--user", metavar="A,B", shell_complete=complete_users, help="Owners.")
@click.option("-m", "--mine", is_flag=True, help="Only your own tasks.")
@click.option("-g", "--group", metavar="A,B", shell_complete=complete_groups, help="Node groups.")
@click.option("--tag", metavar="A,B", help="Tasks with any of these labels.")
@click.option("--name", metavar="PATTERN", help="Name; * stands for anything.")
@click.option("--priority", type=Priority(), metavar="P", help=f"A level: {', '.join(PRIORITIES)}.")
@click.option("--starred", is_flag=True, help="Only tasks that are starred.")
@click.option(
    "--sort",
    "order_by",
    metavar="FIELD",
    default="",
    help="id, create_time, priority, name or state; add ' desc' to reverse the order.",
)
@click.option("-p", "--page", type=click.IntRange(1), metavar="N", help="Which page.")
@click.option(
    "-ps", "--page-size", type=click.IntRange(1, 1000), metavar="N", help="Tasks a page; 50."
)
@click.option("--page-token", default="", help="Continue after a page of -o json.")
@click.option(
    "-a",
    "--all",
    "everything",
    is_flag=True,
    help="All pages at once; -q lists all unless a page is asked for.",
)
@click.option("-w", "--watch", is_flag=True, help="Keep running and print changes as they happen.")
@with_client
async def list_tasks(
    settings: Settings,
    client: Client,
    /,
    filter: tuple[str, ...],
    watch: bool,
    mine: bool,
    **options: Any,
) -> int:
    """List tasks, the newest first.

    FILTER is a list of terms: state:running,suspended  outcome:failed  user:alice  name:bert*
    tag:sweep  group:default  priority>=30  age<2d  created>2026-01-01  starred:true  id:1,2
    after:12 (waits for task 12 to end). Terms are ANDed, commas OR values, a leading - negates. The
    options below are shorthands for such terms.

    \b
    Examples:
      hai list --state running,suspended --mine
      hai list 'name:bert* -tag:old' --sort 'priority desc'
      hai stop $(hai list -q --state suspended --tag sweep)
      hai list -o json | jq '.tasks[].id'
    """
    terms = [*filter, *_filter_terms(options)]
    if mine:
        terms.append(f"user:{quote((await client.users.whoami()).user.name)}")
    if watch:
        from hai_tui.cli.output.watch import watch_tasks

        return await watch_tasks(client, settings, " ".join(terms))
    await _show_tasks(client, settings, " ".join(terms), _page_options(settings, options))
    return 0


def _filter_terms(options: Mapping[str, Any]) -> list[str]:
    """Return the filter terms for the options that are shorthands."""
    terms = [f"{key}:{_quote_values(options[key])}" for key in _TERMS if options[key]]
    if options["priority"] is not None:
        terms.append(f"priority:{options['priority']}")
    return [*terms, "starred:true"] if options["starred"] else terms


def _quote_values(value: str) -> str:
    return ",".join(v if v.endswith("*") else quote(v.strip()) for v in value.split(","))


def _page_options(settings: Settings, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fill in the defaults of the paging options.

    If only names are printed, the default is all pages, because another command reads the names.
    """
    is_paged = options["page"] or options["page_size"] or options["page_token"]

    return {
        **options,
        "everything": options["everything"] or (settings.names_only and not is_paged),
        "page": options["page"] or 1,
        "page_size": options["page_size"] or 50,
    }


async def _show_tasks(
    client: Client, settings: Settings, filter: str, options: Mapping[str, Any]
) -> None:
    """Print one page or all pages, and say how to get the next page."""
    if options["everything"]:
        tasks = [t async for t in client.tasks.all(filter=filter, order_by=options["order_by"])]
        show(settings, TASKS, tasks, {"next_page_token": "", "total": len(tasks)})
        return await _warn_if_empty(client, settings, filter, tasks)
    page = await _fetch_page(client, settings, filter, options)
    more = {"next_page_token": page.next_page_token, "total": page.total}
    show(settings, TASKS, page.tasks, more)
    await _warn_if_empty(client, settings, filter, page.tasks)
    if page.next_page_token and settings.sentences:
        listed = (options["page"] - 1) * options["page_size"] + len(page.tasks)
        numbers = {"shown": listed, "total": page.total, "page": options["page"] + 1}
        note(settings, text("list.more", **numbers))


async def _warn_if_empty(
    client: Client, settings: Settings, filter: str, tasks: Sequence[Task]
) -> None:
    """Warn about unknown names in the filter if it matches no task."""
    if not tasks:
        note_warnings(settings, *await filter_warnings(client, filter))


async def _fetch_page(
    client: Client, settings: Settings, filter: str, options: Mapping[str, Any]
) -> ListTasksResponse:
    """Return the page with that number.

    The pages before it are fetched as well, since only the token of a page leads to the next one.
    """
    token, page = options["page_token"], None
    for number in range(1, options["page"] + 1):
        page = await client.tasks.list(
            filter=filter,
            order_by=options["order_by"],
            page_size=options["page_size"],
            page_token=token,
            count=not settings.quiet,
        )
        token = page.next_page_token
        if not token and number < options["page"]:
            raise click.UsageError(f"there is no page {options['page']}; the last one is {number}")
    assert page is not None
    return page
