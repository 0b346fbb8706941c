"""The table of commands with their help texts, so that `--help` imports none of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from hai.command_line import LazyGroup

COMMANDS = {
    "init": ("workspaces:init", "Make a directory a workspace."),
    "push": ("transfer:push", "Send local changes to the cluster."),
    "pull": ("transfer:pull", "Fetch changes from the cluster."),
    "sync": ("transfer:sync", "Push and pull at once."),
    "diff": ("diff:diff", "Show what differs from the cluster."),
    "status": ("status:status", "Show the state of this workspace."),
    "list": ("workspaces:listing", "List your workspaces."),
    "ls": ("remote_files:ls", "List files on the cluster with their sizes."),
    "cat": ("remote_files:cat", "Print files of the cluster."),
    "remove": ("remove:remove", "Remove a workspace, or files of it, from the cluster."),
    "download": ("download:download", "Download files of the cluster."),
    "check-ignore": ("check_ignore:check_ignore", "Show which rule ignores a path."),
    "resolve": ("resolve:resolve", "List or resolve conflicts."),
    "snapshots": ("revisions:snapshots", "List revisions on the cluster, or versions saved here."),
    "tag": ("revisions:tag", "Tag a revision, so that it is kept."),
    "restore": ("restore:restore", "Restore older versions."),
    "watch": ("watch:watch", "Sync while you work: start, pause, stop, status, flush."),
    "config": ("config:config", "Set defaults of options for this workspace."),
    "bugreport": ("bugreport:bugreport", "Print information for a bug report."),
}


class WorkspaceGroup(LazyGroup):
    """A group whose options take their defaults from the settings of the workspace."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Add the defaults, except for shell completion, which needs none."""
        defaults = {} if extra.get("resilient_parsing") else _defaults()
        return super().make_context(info_name, args, parent, default_map=defaults, **extra)


def _defaults() -> dict[str, Any]:
    """Return the defaults by command and option.

    Each is validated when its option is used, so that an invalid value affects no other option.
    """
    from hai.client.errors import HaiError
    from hai_sync.settings import read_settings
    from hai_sync.workspace_dir import find_workspace

    try:
        found = read_settings(find_workspace())
    except (HaiError, OSError):  # commands that need a workspace report the error
        return {}
    options = {name: partial(_value, name, value) for name, value in found.items()}
    return dict.fromkeys(COMMANDS, options) | {"watch": {"start": options}}


def _value(name: str, value: str) -> Any:
    from hai_sync.cli.commands.config import value_of

    return value_of(name, value)


_HELP = """Keep a directory here and on the cluster's storage the same.

\b
  haiworkspace init NAME     make this directory a workspace
  haiworkspace push          send your changes to the cluster
  haiworkspace pull          fetch changes from the cluster
  haiworkspace download --task ID    get what a task wrote
  haiworkspace watch start   do both while you work
"""

GROUP = WorkspaceGroup(
    name="workspace",
    package="hai_sync.cli.commands",
    targets={name: target for name, (target, _) in COMMANDS.items()},
    summary=lambda name: COMMANDS[name][1],
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"]},
)
