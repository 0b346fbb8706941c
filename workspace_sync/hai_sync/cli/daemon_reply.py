"""What a running daemon has answered to `flush`: whether a command has its work done by that, told as it would itself.

Loads nothing but the standard library, and little of that. A daemon of an older version says less.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing itself would take a fifth of the time that there is
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_LEFT_ALONE = {"conflicts": "conflict", "problems": "problem", "passed_over": "on the cluster only"}
_HINT = "`haiworkspace sync --dry-run` shows them"


def is_done(answer: Mapping[str, Any], verb: str) -> bool:
    """Whether the command need do nothing more: the daemon goes its way, with its server, and leaves out no more."""
    if verb == "watch":
        return True
    mode = answer.get("mode", "sync")
    return mode in ("sync", verb) and not answer.get("filtered") and _is_our_server(answer)


def _is_our_server(answer: Mapping[str, Any]) -> bool:
    """A daemon that was told which server says no `surroundings`."""
    from hai_sync.watch.control import server_choice

    return bool(answer.get("surroundings") == server_choice(answer.get("config", "")))


def tell(answer: Mapping[str, Any], verb: str, as_json: bool) -> int:
    """As the whole program does for this command; the exit code."""
    if "error" in answer:
        return _tell_failure(answer, as_json)
    if as_json:
        _event("done", answer)
    elif answer["refused"]:
        print(f"haiworkspace: not synced: {_refusal(answer)}", file=sys.stderr)
    else:
        print(f"in sync at revision {answer['revision']} (daemon)")
    if not as_json:
        _tell_left_alone(answer)
    counted = ("refused", "conflicts", "problems", *(("passed_over",) if verb == "sync" else ()))
    return int(any(answer.get(kind) for kind in counted))


def _refusal(answer: Mapping[str, Any]) -> str:
    """Why something was not synced, and what to do."""
    if withheld := answer.get("withheld"):
        count = f"{len(withheld)} removals, of more than half of all files"
        return f"{count}; {_HINT}, `haiworkspace sync --many-removals` carries them out"
    return f"{answer['refused']}; {_HINT}, `haiworkspace watch stop` lets you decide by hand"


def _tell_left_alone(answer: Mapping[str, Any]) -> None:
    for path, why in answer.get("skipped", {}).items():
        from hai_sync.cli.reporting import skipped

        print(f"  {skipped(path, why)}", file=sys.stderr)
    for kind, word in _LEFT_ALONE.items():
        for path in answer.get(kind, ()):
            from hai_sync.cli.reporting import printable

            print(f"  {word}: {printable(path)}", file=sys.stderr)


def _tell_failure(answer: Mapping[str, Any], as_json: bool) -> int:
    message, hint = f"the daemon cannot sync: {answer['error']}", answer.get("hint", "")
    code: int = answer.get("exit_code", 1)
    if as_json:
        facts = {"message": message, "hint": hint, "reason": answer["reason"], "exit_code": code}
        _event("error", {"error": facts}, file=sys.stderr)
        return code
    print(f"haiworkspace: {message}", file=sys.stderr)
    if hint:
        print(f"  hint: {hint}", file=sys.stderr)
    return code


def _event(kind: str, facts: Mapping[str, Any], file: Any = None) -> None:
    import json

    print(json.dumps({"event": kind, **facts}), file=file)
