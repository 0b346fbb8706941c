"""`haiworkspace`, and the group that `hai workspace` loads by name.

`push` with nothing else asks a running daemon before anything is imported: the answer takes as long as
starting Python does.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing itself would take a fifth of the time that there is
if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

_QUICK = {("push",), ("push", "--json"), ("sync",), ("sync", "--json"), ("watch", "flush")}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code is returned."""
    arguments = tuple(sys.argv[1:] if argv is None else argv)
    if arguments in _QUICK and (answer := _ask_daemon()) is not None:
        return _tell(answer, as_json="--json" in arguments)
    from hai_sync.cli.failures import run

    return run(group(), arguments)


def group() -> click.Group:
    """All commands; each is imported when it is used."""
    from hai_sync.cli.lazy import GROUP

    return GROUP


def _ask_daemon() -> dict[str, object] | None:
    folder = os.getcwd()
    while not os.path.isfile(os.path.join(folder, ".hfai", "workspace.yml")):
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return None
    own = os.path.join(folder, ".hfai")
    if not os.path.exists(os.path.join(own, "daemon.sock")):
        return None
    from hai_sync.watch.control import ask

    answer: dict[str, object] | None = ask(own, {"verb": "flush"})
    return answer


def _tell(answer: dict[str, object], as_json: bool) -> int:
    import json

    if "error" in answer:
        print(f"haiworkspace: the daemon cannot sync: {answer['error']}", file=sys.stderr)
        return 5 if answer.get("reason") == "UNREACHABLE" else 1
    if as_json:
        print(json.dumps({"event": "done", **answer}))
    else:
        print(f"in sync at revision {answer['revision']} (daemon)")
    for kind in ("conflicts", "problems"):
        for path in answer[kind] if not as_json else ():  # type: ignore[attr-defined]
            print(f"  {kind[:-1]}: {path}", file=sys.stderr)
    return 1 if answer["conflicts"] or answer["problems"] or answer["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
