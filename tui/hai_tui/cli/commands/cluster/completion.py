"""`hai completion`: the completion script of a shell, and the escaping that bash needs for offered values."""

from __future__ import annotations

import re

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    ShellComplete,
    get_completion_class,
)

from hai_tui.cli.command import HaiCommand

_SPECIAL = re.compile(r"[^\w@%+=:,./~-]")


@click.command("completion", cls=HaiCommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print a completion script. Commands and options complete at once; tasks, nodes, groups and
    users are asked from the server, for at most two seconds.

    \b
    Examples:
      eval "$(hai completion bash)"     in ~/.bashrc
      eval "$(hai completion zsh)"      in ~/.zshrc
      hai completion fish > ~/.config/fish/completions/hai.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    for name in ("hai", "hai-cli"):
        script = kind(ctx.find_root().command, {}, name, "_HAI_COMPLETE")
        # The subclass for bash would check the version of bash on this machine
        click.echo(ShellComplete.source(script))
    return 0


class EscapingBash(BashComplete):
    """Puts a backslash before special characters, because bash inserts a completion unquoted. Other shells quote it."""

    def format_completion(self, item: CompletionItem) -> str:
        """Escape the value, and double all backslashes: click's script reads them with `read` without -r."""
        escaped = _SPECIAL.sub(r"\\\g<0>", item.value) if item.type == "plain" else item.value
        return f"{item.type},{escaped}".replace("\\", r"\\")
