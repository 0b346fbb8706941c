"""Reads the reply of a daemon to `flush`: decides whether the command has work left, and prints the result.

This module imports as little as possible, so that the command starts fast. Replies of older daemons lack some keys.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing typing takes a fifth of the time in which the command must start
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_NOT_SYNCED = {"conflicts": "conflict", "problems": "problem", "passed_over": "on the cluster only"}
_HINT = "`haiworkspace sync --dry-run` shows them"


def is_done(reply: Mapping[str, Any], verb: str) -> bool:
    """Return whether the daemon did all the work of the command: in its mode, without filters, with the same server."""
    if verb == "watch":
        return True
    mode = reply.get("mode", "sync")
    return mode in ("sync", verb) and not reply.get("filtered") and _uses_same_server(reply)


def _uses_same_server(reply: Mapping[str, Any]) -> bool:
    """Return whether the command would connect to the daemon's server. A daemon with --profile never matches."""
    from hai_sync.watch.control import server_choice

    return bool(reply.get("surroundings") == server_choice(reply.get("config", "")))


def print_reply(reply: Mapping[str, Any], verb: str, as_json: bool) -> int:
    """Print the reply as the command would print its report. Return the exit code."""
    if "error" in reply:
        return _print_failure(reply, as_json)
    if as_json:
        _print_event("done", reply)
    elif reply["refused"]:
        print(f"haiworkspace: not synced: {_refusal(reply)}", file=sys.stderr)
    else:
        print(f"in sync at revision {reply['revision']} (daemon)")
    if not as_json:
        _print_not_synced(reply)
    failures = ("refused", "conflicts", "problems", *(("passed_over",) if verb == "sync" else ()))
    return int(any(reply.get(kind) for kind in failures))


def _refusal(reply: Mapping[str, Any]) -> str:
    """Return why something was not synced, and what to do."""
    if withheld := reply.get("withheld"):
        count = f"{len(withheld)} removals, of more than half of all files"
        return f"{count}; {_HINT}, `haiworkspace sync --many-removals` carries them out"
    return f"{reply['refused']}; {_HINT}, `haiworkspace watch stop` lets you resolve them"


def _print_not_synced(reply: Mapping[str, Any]) -> None:
    for path, reason in reply.get("skipped", {}).items():
        from hai_sync.cli.reporting import skipped_line

        print(f"  {skipped_line(path, reason)}", file=sys.stderr)
    for kind, label in _NOT_SYNCED.items():
        for path in reply.get(kind, ()):
            from hai_sync.cli.reporting import printable

            print(f"  {label}: {printable(path)}", file=sys.stderr)


def _print_failure(reply: Mapping[str, Any], as_json: bool) -> int:
    message, hint = f"the daemon cannot sync: {reply['error']}", reply.get("hint", "")
    code: int = reply.get("exit_code", 1)
    if as_json:
        fields = {"message": message, "hint": hint, "reason": reply["reason"], "exit_code": code}
        _print_event("error", {"error": fields}, file=sys.stderr)
        return code
    print(f"haiworkspace: {message}", file=sys.stderr)
    if hint:
        print(f"  hint: {hint}", file=sys.stderr)
    return code


def _print_event(kind: str, fields: Mapping[str, Any], file: Any = None) -> None:
    import json

    print(json.dumps({"event": kind, **fields}), file=file)
