"""The exact plan of a sync, printed as it is made: one of 200 000 paths needs no memory of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hai.client.text.sizes import size_text
from hai_sync.cli.reporting import (
    change_facts,
    conflict_facts,
    conflict_line,
    printable,
    tell_problems,
)
from hai_sync.core.diff import Change
from hai_sync.core.entry import Kind
from hai_sync.session.options import Report

_SIGNS = {"create": "+", "modify": "~", "remove": "-"}


def tell_plan(report: Report, as_json: bool) -> None:
    """All of it: a line for each path, or one object."""
    sys.stdout.writelines(_json(report) if as_json else _lines(report))
    sys.stdout.flush()
    if not as_json:
        tell_problems(report)


def _lines(report: Report) -> Iterator[str]:
    for arrow, changes in (("->", report.outcome.to_remote), ("<-", report.outcome.to_local)):
        for change in changes:
            yield printable(f"{arrow} {_SIGNS[change.verb]} {_about(change)}") + "\n"
    for conflict in report.outcome.conflicts:
        yield f"!! {conflict_line(conflict)}\n"


def _about(change: Change) -> str:
    entry = change.new or change.old
    assert entry is not None
    if entry.kind is Kind.DIRECTORY:
        return change.path + "/"
    if entry.kind is Kind.SYMLINK:
        return f"{change.path} -> {entry.target}"
    return f"{change.path}  ({size_text(entry.size)})" if change.new else change.path


def _json(report: Report) -> Iterator[str]:
    outcome = report.outcome
    yield '{"event": "plan"'
    yield from _member("to_remote", map(change_facts, outcome.to_remote))
    yield from _member("to_local", map(change_facts, outcome.to_local))
    yield from _member("conflicts", map(conflict_facts, outcome.conflicts))
    not_synced = {
        "problems": report.problems,
        "skipped": report.skipped,
        "passed_over": report.passed_over,
    }
    for name, paths in not_synced.items():
        yield f', "{name}": {json.dumps(paths)}'
    yield "}\n"


def _member(name: str, items: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A list, an item at a time."""
    yield f', "{name}": ['
    between = ""
    for item in items:
        yield between + json.dumps(item)
        between = ", "
    yield "]"
