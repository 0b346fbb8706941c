"""The command `haiworkspace resolve`: lists conflicts, and resolves one, several or all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from hai.client.errors import NotFound
from hai_sync.cli.options import common_options, default_filter, links_option, wants_json
from hai_sync.cli.reporting import conflict_facts, conflict_line, print_event, print_report
from hai_sync.cli.session_factory import relative_path, with_session
from hai_sync.core.entry import is_within
from hai_sync.core.reconcile_options import Conflict, Mode, Policy, Rules
from hai_sync.scan import Filter
from hai_sync.session.options import Report, SyncOptions
from hai_sync.session.session import Session

_POLICIES = {
    "local": Policy.LOCAL,
    "remote": Policy.REMOTE,
    "newer": Policy.NEWER,
    "both": Policy.KEEP_BOTH,
}


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--keep", type=click.Choice(list(_POLICIES)), help="Which version is kept.")
@click.option("--all", "everything", is_flag=True, help="Resolve all conflicts.")
@links_option
@common_options
def resolve(paths: tuple[str, ...], keep: str | None, everything: bool, **options: Any) -> int:
    """List conflicts, or resolve them.

    \b
      haiworkspace resolve                          list them
      haiworkspace resolve train.py --keep local    keep the local version
      haiworkspace resolve --all --keep both        the local one becomes a copy
    """
    as_json = wants_json(options)
    filter = default_filter(options)
    if keep is None:
        return _list(options["profile"], filter, as_json)
    if bool(paths) == everything:
        raise click.UsageError("name the paths, or use --all")
    policy = _POLICIES[keep]

    async def work(session: Session) -> tuple[Report, bool]:
        chosen = tuple(relative_path(session.workspace, path) for path in paths)
        _require_conflicts(await _conflicts(session, filter), chosen)
        report = await session.sync(_sync_options(chosen, policy, filter))
        return report, report.is_settled(chosen)

    report, settled = with_session(options["profile"], work)
    print_report(report, as_json, quiet=False)
    return 0 if settled else 1


def _sync_options(paths: tuple[str, ...], policy: Policy, filter: Filter) -> SyncOptions:
    if not paths:
        return SyncOptions(Rules(Mode.SYNC, policy), filter, purpose="resolve")
    per_path = tuple((path, policy) for path in paths)
    rules = Rules(Mode.SYNC, per_path=per_path)
    return SyncOptions(rules, filter, paths=tuple(path for path, _ in per_path), purpose="resolve")


async def _conflicts(session: Session, filter: Filter) -> Sequence[Conflict]:
    sync_options = SyncOptions(Rules(Mode.SYNC), filter, dry_run=True, purpose="resolve")
    return (await session.sync(sync_options)).outcome.conflicts


def _require_conflicts(conflicts: Sequence[Conflict], paths: Sequence[str]) -> None:
    """Raise NotFound for a path without a conflict at or below it."""
    for path in paths:
        if not any(is_within(conflict.path, path) for conflict in conflicts):
            raise NotFound(f"no conflict at {path!r}", hint="`haiworkspace resolve` lists them")


def _list(profile: str | None, filter: Filter, as_json: bool) -> int:
    conflicts = with_session(profile, lambda session: _conflicts(session, filter))
    if as_json:
        print_event("conflicts", conflicts=[conflict_facts(conflict) for conflict in conflicts])
    for conflict in conflicts if not as_json else ():
        click.echo(conflict_line(conflict))
    return 1 if conflicts else 0
