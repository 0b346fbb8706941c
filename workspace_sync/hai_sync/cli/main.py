"""`haiworkspace`, and the group that `hai workspace` loads by name.

`push` with nothing else asks a running daemon before anything is imported, or looks by itself and
pushes a few edited files: that takes as long as starting Python does, and a walk.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing itself would take a fifth of the time that there is
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import click

_PUSH = {("push",), ("push", "--json")}
_QUICK = _PUSH | {("sync",), ("sync", "--json"), ("watch", "flush")}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code is returned."""
    arguments = tuple(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        from hai.client.stdout import nobody_reads

        return nobody_reads()
    except TimeoutError as error:  # of a daemon; other commands tell their own
        from hai_sync.cli.errors import tell

        return tell(error, arguments)
    except KeyboardInterrupt:  # while a daemon is asked, or we look by ourselves
        print("interrupted; do it again to go on", file=sys.stderr)
        return 130


def _run(arguments: tuple[str, ...]) -> int:
    root = _root() if arguments in _QUICK else ""
    as_json = "--json" in arguments
    if root and (answer := _ask_daemon(root, look=arguments not in _PUSH)) is not None:
        from hai_sync.cli.daemon_reply import is_done, tell

        if is_done(answer, arguments[0]):
            return tell(answer, arguments[0], as_json)
    elif root and arguments in _PUSH and (facts := _push(root, as_json)) is not None:
        return _tell_push(facts, as_json)
    from hai_sync.cli.errors import run

    return run(group(), arguments)


def group() -> click.Group:
    """All commands; each is imported when it is used."""
    from hai_sync.cli.lazy import GROUP

    return GROUP


def _root() -> str:
    """The workspace that we stand in; empty: none."""
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
    """`look`: also at what was written on the cluster."""
    own = os.path.join(root, ".hfai")
    if not os.path.exists(os.path.join(own, "daemon.sock")):
        return None
    from hai_sync.watch.control import ask

    answer: dict[str, object] | None = ask(own, {"verb": "flush", "look": look})
    return answer


def _push(root: str, as_json: bool) -> Mapping[str, int] | None:
    """With --json the whole program tells of each stage, if there is anything to do."""
    from hai_sync.quick.syncing import quick_push

    return quick_push(root, only_look=as_json)


def _tell_push(facts: Mapping[str, int], as_json: bool) -> int:
    """As the whole program says it."""
    if as_json:
        import json

        none = {
            "bytes": 0,
            "downloaded": 0,
            "held": [],
            "conflicts": [],
            "refused": "",
            "withheld": [],
        }
        print(
            json.dumps(
                {"event": "done", **facts, **none, "problems": {}, "skipped": {}, "passed_over": {}}
            )
        )
        return 0
    from hai_sync.cli.sizes import size_of

    up, sent = facts["uploaded"], size_of(facts["wire_bytes"])
    parts = [f"in sync at revision {facts['revision']}"]
    parts += [f"{up} paths up ({sent} sent)"] if up else []
    parts += [f"{facts['ignored']} ignored"] if facts["ignored"] else []
    print(", ".join(parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
