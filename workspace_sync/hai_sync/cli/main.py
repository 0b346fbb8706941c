"""The command `haiworkspace`, and the group that `hai workspace` loads by name.

`push`, `sync` and `watch flush` without options query a running daemon before anything else is imported, because
importing takes as long as starting Python.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing takes a fifth of the time of a flush
if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

_PUSH_ONLY = {("push",), ("push", "--json")}
_BY_DAEMON = _PUSH_ONLY | {("sync",), ("sync", "--json"), ("watch", "flush")}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    arguments = tuple(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        from hai.command_line import closed_pipe_exit_code

        return closed_pipe_exit_code()
    except TimeoutError as error:  # a daemon did not answer; commands handle their own errors
        from hai_sync.cli.errors import print_error

        return print_error(error, arguments)
    except KeyboardInterrupt:
        print("interrupted; run the command again to resume", file=sys.stderr)
        return 130


def _run(arguments: tuple[str, ...]) -> int:
    """Let a daemon run the command if it can, else run it here."""
    root = _root() if arguments in _BY_DAEMON else ""
    as_json = "--json" in arguments
    if root and (reply := _flush_daemon(root, scan_remote=arguments not in _PUSH_ONLY)) is not None:
        from hai_sync.cli.daemon_reply import is_done, print_reply

        if is_done(reply, arguments[0]):
            return print_reply(reply, arguments[0], as_json)
    from hai_sync.cli.errors import run

    return run(group(), arguments)


def group() -> click.Group:
    """Return the group of all commands. Each is imported when it is used."""
    from hai_sync.cli.lazy import GROUP

    return GROUP


def _root() -> str:
    """Return the root of the workspace of the current directory, or an empty string."""
    try:
        folder = os.path.realpath(os.getcwd())
    except FileNotFoundError:  # the current directory was removed
        return ""
    while not os.path.isfile(os.path.join(folder, ".hfai", "workspace.yml")):
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return ""
    return folder


def _flush_daemon(root: str, *, scan_remote: bool) -> dict[str, object] | None:
    """Let the daemon sync everything saved so far; with `scan_remote` also what was written on the cluster."""
    private_dir = os.path.join(root, ".hfai")
    if not os.path.exists(os.path.join(private_dir, "daemon.sock")):
        return None
    from hai_sync.watch.control import query_daemon

    reply: dict[str, object] | None = query_daemon(
        private_dir, {"verb": "flush", "look": scan_remote}
    )
    return reply


if __name__ == "__main__":
    sys.exit(main())
