"""Prints the plan, progress and report of a sync, for people or as one JSON object per line."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from hai.client.text.formatting import size_text
from hai_sync.core.diff import Change
from hai_sync.core.entry import Entry, Kind
from hai_sync.core.guards import SizeWarning, check_push_size
from hai_sync.core.reconcile_options import Conflict
from hai_sync.session.options import Refused, Report

_SIGNS = {"create": "+", "modify": "~", "remove": "-"}
_TOP = 10
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_UPDATE_SECONDS = 0.1


def print_event(kind: str, /, **facts: Any) -> None:
    """Print one JSON object."""
    click.echo(json.dumps({"event": kind, **facts}, ensure_ascii=True))


class Progress:
    """Shows files, bytes, speed and remaining time, on one line of a terminal or as events."""

    def __init__(
        self, as_json: bool, quiet: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._json, self._quiet, self._clock = as_json, quiet, clock
        self._bar = sys.stderr.isatty() and not quiet and not as_json
        self._name, self._files, self._size = "", 0, 0
        self._done_files = self._done = 0
        self._began = self._updated_at = 0.0

    def note_changes(self, changes: Sequence[Change]) -> None:
        """Warn of an unusually large push before it is sent."""
        found = None if self._quiet else check_push_size(changes)
        if found is not None and self._json:
            print_event("heavy", **asdict(found))
        elif found is not None:
            click.echo("\n".join(_size_warning_lines(found)), err=True)

    def stage(self, name: str, files: int, size: int) -> None:
        self._name, self._files, self._size = name, files, size
        self._done_files = self._done = 0
        self._began = self._updated_at = self._clock()
        if self._json:
            print_event("stage", name=name, files=files, bytes=size)
        elif name == "wait" and not self._quiet:
            click.echo("waiting for another sync of this directory", err=True)

    def progress(self, files: int, size: int) -> None:
        self._done_files += files
        self._done += size
        now = self._clock()
        if now - self._updated_at < _UPDATE_SECONDS:
            return
        self._updated_at = now
        speed = self._done / (now - self._began)
        eta = round(max(0, self._size - self._done) / speed) if speed else None
        if self._json:
            facts = {"files": self._done_files, "bytes": self._done, "of_bytes": self._size}
            print_event(
                "progress", name=self._name, **facts, bytes_per_second=round(speed), eta=eta
            )
        elif self._bar:
            click.echo(f"\r\x1b[K{self._line(speed, eta)}", err=True, nl=False)

    def _line(self, speed: float, eta: int | None) -> str:
        """Return the progress line. Before the first byte it has no remaining time."""
        return (
            f"{self._name}: {self._done_files}/{self._files} files, "
            f"{size_text(self._done)} of {size_text(self._size)}, {size_text(speed)}/s"
            + ("" if eta is None else f", {eta} s left")
        )

    def end(self) -> None:
        """Clear the progress line."""
        if self._bar and self._name:
            click.echo("\r\x1b[K", err=True, nl=False)


def _size_warning_lines(found: SizeWarning) -> Iterator[str]:
    yield f"this sends {size_text(found.size)} in {found.files} files"
    for path, size in found.largest:
        yield printable(f"  {size_text(size):>10}  {path}")
    for folder, count in found.fullest:
        yield printable(f"  {count:>10} files  {folder}")
    yield "  Ctrl-C stops it; a line in .haiignore excludes a path"


def conflict_line(conflict: Conflict) -> str:
    """Return one line with the versions of both sides."""
    local_entry, remote_entry = (
        conflict.local.get(conflict.path),
        conflict.remote.get(conflict.path),
    )
    return printable(
        f"{conflict.path}  here: {_version_text(local_entry)}; cluster: {_version_text(remote_entry)}"
    )


def _version_text(entry: Entry | None) -> str:
    if entry is None:
        return "removed"
    if entry.kind is not Kind.FILE:
        return entry.kind.name.lower()
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.mtime_ns / 1e9))
    return f"{size_text(entry.size)} of {when}, {entry.digest.hex()[:8]}"


def conflict_facts(conflict: Conflict) -> Mapping[str, Any]:
    return {
        "path": conflict.path,
        "local": _facts_of(conflict.local.get(conflict.path)),
        "remote": _facts_of(conflict.remote.get(conflict.path)),
    }


def _facts_of(entry: Entry | None) -> Mapping[str, Any] | None:
    return None if entry is None else entry_facts(entry)


def entry_facts(entry: Entry) -> dict[str, Any]:
    return {
        "kind": entry.kind.name.lower(),
        "size": entry.size,
        "mtime_ns": entry.mtime_ns,
        "digest": entry.digest.hex(),
    }


def change_facts(change: Change) -> Mapping[str, Any]:
    return {
        "path": change.path,
        "verb": change.verb,
        "old": _facts_of(change.old),
        "new": _facts_of(change.new),
    }


def print_plan(report: Report, as_json: bool) -> None:
    """Print the complete plan: a line for each path, or one JSON object."""
    sys.stdout.writelines(_plan_json(report) if as_json else _plan_lines(report))
    sys.stdout.flush()
    if not as_json:
        print_problems(report)


def _plan_lines(report: Report) -> Iterator[str]:
    for arrow, changes in (("->", report.outcome.to_remote), ("<-", report.outcome.to_local)):
        for change in changes:
            yield printable(f"{arrow} {_SIGNS[change.verb]} {_plan_entry(change)}") + "\n"
    for conflict in report.outcome.conflicts:
        yield f"!! {conflict_line(conflict)}\n"


def _plan_entry(change: Change) -> str:
    entry = change.new or change.old
    assert entry is not None
    if entry.kind is Kind.DIRECTORY:
        return change.path + "/"
    if entry.kind is Kind.SYMLINK:
        return f"{change.path} -> {entry.target}"
    return f"{change.path}  ({size_text(entry.size)})" if change.new else change.path


def _plan_json(report: Report) -> Iterator[str]:
    """Yield the plan as one JSON object in parts."""
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
    """Yield a JSON list item by item, since a plan may be large."""
    yield f', "{name}": ['
    between = ""
    for item in items:
        yield between + json.dumps(item)
        between = ", "
    yield "]"


def print_report(report: Report, as_json: bool, quiet: bool) -> None:
    """Print the result of a sync."""
    if as_json:
        print_event("done", **report.as_dict())
        return
    print_problems(report)
    if report.refused is Refused.CONFLICTS:
        _print_conflicts(report)
    elif report.refused is Refused.SKIPPED:
        click.echo("nothing was changed: --strict refuses to skip links", err=True)
    elif report.refused is Refused.REMOVALS:
        _print_removals(report)
        if report.done and not quiet:
            click.echo(_summary(report))
    elif not quiet:
        click.echo(_summary(report))


def print_problems(report: Report) -> None:
    for line in problem_lines(report):
        click.echo(line, err=True)


def problem_lines(report: Report) -> list[str]:
    """Return one line for each path of either side that is not synced."""
    both = (*report.problems.items(), *report.passed_over.items())
    lines = [skipped_line(path, reason) for path, reason in report.skipped.items()]
    return lines + [not_synced_line(path, reason) for path, reason in both]


def not_synced_line(path: str, reason: str) -> str:
    return printable(f"not synced: {path}: {reason}")


def skipped_line(path: str, reason: str) -> str:
    """Return the line of a skipped link, which is not an error."""
    return printable(f"skipped: {path}: {reason}")


def printable(text: str) -> str:
    """Escape bytes that are not UTF-8, control characters, line ends, and changes of the writing direction."""
    escaped = text.encode(errors="backslashreplace").decode()
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), escaped)


def _print_conflicts(report: Report) -> None:
    click.echo("nothing was changed: both sides have changed these files", err=True)
    for conflict in report.outcome.conflicts:
        click.echo(f"  {conflict_line(conflict)}", err=True)
    click.echo(
        "  hint: `haiworkspace resolve PATH --keep local|remote|newer|both`, --partial syncs the rest",
        err=True,
    )


def _print_removals(report: Report) -> None:
    count = len(report.withheld)
    summary = "nothing was removed" if report.done else "nothing was changed"
    click.echo(
        f"{summary}: it would remove {count} files, more than half of all, such as", err=True
    )
    for path in report.withheld[:_TOP]:
        click.echo(printable(f"  {path}"), err=True)
    click.echo("  hint: --many-removals allows it, --no-delete keeps them", err=True)


def _summary(report: Report) -> str:
    outcome = report.outcome
    parts = [f"in sync at revision {report.revision}"]
    if outcome.conflicts or report.withheld:
        parts = [f"revision {report.revision}"]
    if outcome.conflicts:
        parts.append(f"{len(outcome.conflicts)} conflicts left")
    if report.withheld:
        parts.append(f"{len(report.withheld)} removals left")
    if outcome.to_remote:
        parts.append(f"{len(outcome.to_remote)} paths up ({size_text(report.wire_bytes)} sent)")
    if outcome.to_local:
        parts.append(f"{len(outcome.to_local)} paths down")
    if outcome.other_side_only:
        parts.append(f"{len(outcome.other_side_only)} changed on the other side only")
    if report.ignored:
        parts.append(f"{report.ignored} ignored")
    return ", ".join(parts)
