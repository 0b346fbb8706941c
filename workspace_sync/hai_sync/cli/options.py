"""Options that several commands share. Those of HAI's former client keep their names.

Options that no longer have a meaning (parts, tokens and proxies of an object store) are accepted with a note, so that
scripts continue to work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import click

from hai_sync.core.links import Links
from hai_sync.core.reconcile_options import Mode, Policy, Rules
from hai_sync.scan import Filter
from hai_sync.session.options import SyncOptions

Command = Callable[..., Any]
_UNUSED_OPTIONS = {
    "no_zip": "contents are sent in chunks, compressed if that helps",
    "no_diff": "the difference is always computed; this is fast",
    "list_timeout": "",
    "cloud_connect_timeout": "",
    "token_expires": "",
    "part_mb_size": "",
    "proxy": "the proxy of gRPC is $https_proxy",
    "provider": "files go directly to the cluster, without an object store",
}


class _OutputOrSeconds(click.ParamType[str]):
    """The value of -o: table, json, or HAI's number of seconds."""

    name = "FORMAT"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        text = str(value)
        if text not in ("table", "json") and not text.isdigit():
            self.fail("must be table or json", param, ctx)
        return text


class _Rate(click.ParamType[int]):
    """A number of bytes per second, such as 500K or 2M."""

    name = "RATE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        found = re.fullmatch(r"(\d+)([KMG]?)", str(value).upper())
        if found is None:
            self.fail("must be bytes per second, such as 500K or 2M", param, ctx)
        return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]


RATE = _Rate()
JOBS = click.IntRange(1, 64)
MODE = click.Choice([mode.value for mode in Mode])
CONFLICT = click.Choice([policy.value for policy in Policy])
LINKS = click.Choice([choice.value for choice in Links])


def common_options(command: Command) -> Command:
    """Add the options of every command."""
    for option in reversed(
        (
            click.option(
                "-o", "--output", type=_OutputOrSeconds(), help="Output format: table or json."
            ),
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line."),
            click.option("--profile", metavar="NAME", help="Which server to use."),
            click.option("--debug", is_flag=True, help="Show a trace of errors."),
        )
    ):
        command = option(command)
    return command


def wants_json(options: Mapping[str, Any]) -> bool:
    """Return whether --json or -o json was given."""
    return bool(options["as_json"] or options["output"] == "json")


links_option = click.option(
    "--links",
    type=LINKS,
    default=Links.AUTO.value,
    show_default=True,
    help="What to do with links that lead out of the workspace.",
)
"""The option of commands that compare local files with those of the cluster."""


def filter_options(command: Command) -> Command:
    """Add the options that select ignored paths."""
    for option in reversed(
        (
            click.option(
                "--include",
                multiple=True,
                metavar="PATTERN",
                help="Sync matching paths although they are ignored.",
            ),
            click.option(
                "--exclude", multiple=True, metavar="PATTERN", help="Ignore matching paths."
            ),
            click.option(
                "-i", "--no_hfignore", "--no-ignore", is_flag=True, help="Read no ignore files."
            ),
        )
    ):
        command = option(command)
    return command


bwlimit_option = click.option(
    "--bwlimit", type=RATE, default=0, help="Bytes per second, such as 500K or 2M."
)
"""The option of commands that transfer files."""


def transfer_options(command: Command) -> Command:
    """Add the options of push, pull and sync."""
    for option in reversed(_TRANSFER):
        command = option(command)
    return common_options(filter_options(links_option(command)))


def _seconds(least: int, most: int) -> click.IntRange:
    return click.IntRange(least, most)


_TRANSFER = (
    click.option(
        "--dry-run",
        is_flag=True,
        help="Print the plan only. The exit code is 1 if there are changes.",
    ),
    click.option(
        "--force", is_flag=True, help="Overwrite files that differ; old versions are kept."
    ),
    click.option(
        "--conflict",
        type=CONFLICT,
        default=Policy.REFUSE.value,
        show_default=True,
        help="What to do if both sides have changed a file.",
    ),
    click.option("--partial", is_flag=True, help="Sync the paths that are not in conflict."),
    click.option("--delete", is_flag=True, help="Remove files that only the written side has."),
    click.option("--no-delete", is_flag=True, help="Do not remove any files."),
    click.option(
        "--many-removals", is_flag=True, help="Allow the removal of more than half of all files."
    ),
    click.option("--strict", is_flag=True, help="Change nothing if a link would be skipped."),
    click.option(
        "--verify", is_flag=True, help="Read every file, even if its times are unchanged."
    ),
    click.option(
        "-n", "--no_checksum", is_flag=True, help="Compare sizes only, which misses some edits."
    ),
    click.option(
        "--break-lock", is_flag=True, help="Take over the right to write from its holder."
    ),
    bwlimit_option,
    click.option("--jobs", type=JOBS, default=None, help="Number of files read at the same time."),
    click.option("-q", "--quiet", is_flag=True, help="Print only errors."),
    click.option(
        "-s",
        "--sync_timeout",
        type=_seconds(5, 21_600),
        metavar="SECONDS",
        help="Stop after this time.",
    ),
    click.option("-z", "--no_zip", is_flag=True, hidden=True),
    click.option("-d", "--no_diff", is_flag=True, hidden=True),
    click.option("-l", "--list_timeout", type=_seconds(5, 7200), hidden=True),
    click.option("--cloud_connect_timeout", type=_seconds(60, 43_200), hidden=True),
    click.option("-t", "--token_expires", type=_seconds(900, 43_200), hidden=True),
    click.option("-p", "--part_mb_size", type=_seconds(10, 10_240), hidden=True),
    click.option("--proxy", hidden=True),
    click.option("--file_type", hidden=True),
    click.option("--env_provider", hidden=True),
    click.option("--env_local_path", hidden=True),
    click.option("--env_remote_path", hidden=True),
)


def warn_about_unused_options(options: Mapping[str, Any]) -> None:
    """Print a note for each option that is accepted and has no effect."""
    for name, reason in _UNUSED_OPTIONS.items():
        if options.get(name):
            click.echo(
                f"--{name} is no longer needed" + (f": {reason}" if reason else ""), err=True
            )


def default_filter(options: Mapping[str, Any]) -> Filter:
    """Return the filter of commands without filter options."""
    return Filter(links=Links(options["links"]))


def build_filter(options: Mapping[str, Any]) -> Filter:
    files, links = not options["no_hfignore"], Links(options.get("links", Links.AUTO))
    return Filter(options["include"], options["exclude"], files, links)


def build_sync_options(mode: Mode, options: Mapping[str, Any]) -> SyncOptions:
    """Return the options of a sync from those of the command line. Raises click.UsageError."""
    force = options["force"]
    winner = {Mode.PUSH: Policy.LOCAL, Mode.PULL: Policy.REMOTE}.get(mode)
    if force and winner is None:
        raise click.UsageError("--force does not say which side wins a sync: use --conflict")
    policy = winner if force and winner else Policy(options["conflict"])
    rules = Rules(mode, policy, options["delete"], force, not options["no_delete"])
    return SyncOptions(
        rules,
        build_filter(options),
        dry_run=options["dry_run"],
        partial=options["partial"],
        many_removals=options["many_removals"],
        strict=options["strict"],
        verify=options["verify"],
        by_size=options["no_checksum"],
        break_lease=options["break_lock"],
        purpose=mode.value,
        jobs=options["jobs"] or 0,
    )
