"""`hai completion`: a script that teaches a shell our commands, ids and names."""

from __future__ import annotations

import click

from hai_tui.cli.command import HaiCommand

_HELP = """Print a completion script. Commands and options complete at once; tasks, nodes, groups and
users are asked from the server, for at most two seconds.

\b
Examples:
  eval "$(hai completion bash)"     in ~/.bashrc
  eval "$(hai completion zsh)"      in ~/.zshrc
  hai completion fish > ~/.config/fish/completions/hai.fish
"""


@click.command("completion", cls=HaiCommand, help=_HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """The function behind the command."""
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    for name in ("hai", "hai-cli"):
        script = kind(ctx.find_root().command, {}, name, "_HAI_COMPLETE")
        click.echo(ShellComplete.source(script))  # the base: without a check of this machine's bash
    return 0
