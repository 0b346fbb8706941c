"""`haiworkspace`, and the group that `hai workspace` loads by name.

`push`, `sync` and `watch flush` without options ask a running daemon before anything else is imported: that takes as
long as starting Python does.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing itself would take a fifth of the time that there is
if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

_PUSH = {("push",), ("push", "--json")}
_ASK_DAEMON = _PUSH | {("sync",), ("sync", "--json"), ("watch", "flush")}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code is returned."""
    arguments = tuple(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        from hai.command_line import closed_pipe_exit_code

        return closed_pipe_exit_code()
    except TimeoutError as error:  # of a daemon; other commands tell their own
        from hai_sync.cli.errors import tell

        return tell(error, arguments)
    except KeyboardInterrupt:
        print("interrupted; run the command again to resume", file=sys.stderr)
        return 130


def _run(arguments: tuple[str, ...]) -> int:
    root = _root() if arguments in _ASK_DAEMON else ""
    as_json = "--json" in arguments
    if root and (answer := _ask_daemon(root, look=arguments not in _PUSH)) is not None:
        from hai_sync.cli.daemon_reply import is_done, tell

        if is_done(answer, arguments[0]):
            return tell(answer, arguments[0], as_json)
    from hai_sync.cli.errors import run

    return run(group(), arguments)


def group() -> click.Group:
    """All commands; each is imported when it is used."""
    from hai_sync.cli.lazy import GROUP

    return GROUP


def _root() -> str:
    """The workspace of the current directory; empty: none."""
    try:
        folder = os.path.realpath(os.getcwd())
    except FileNotFoundError:  # it was removed
        return ""
    while not os.path.isfile(os.path.join(folder, ".hfai", "workspace.yml")):
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return ""
    return folder


def _ask_daemon(root: str, *, look: bool) -> dict[str, object] | None:
    """`look`: also fetch what was written on the cluster."""
    own = os.path.join(root, ".hfai")
    if not os.path.exists(os.path.join(own, "daemon.sock")):
        return None
    from hai_sync.watch.control import ask

    answer: dict[str, object] | None = ask(own, {"verb": "flush", "look": look})
    return answer


if __name__ == "__main__":
    sys.exit(main())
