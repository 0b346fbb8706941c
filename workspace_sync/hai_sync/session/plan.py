"""From both sides to what is to be done: hash what cannot be decided otherwise, reconcile, guard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hai_sync.core.case_conflicts import newcomers, without
from hai_sync.core.deletion_guard import doubtful_removals, without_removals
from hai_sync.core.entry import Entry, Kind, Tree
from hai_sync.core.reconcile import reconcile, undecided
from hai_sync.core.rules import Outcome
from hai_sync.errors import CHANGING
from hai_sync.hashing import THREADS, hash_files
from hai_sync.scan import ignore_of
from hai_sync.session.options import Listener, Refused, Report, SyncOptions
from hai_sync.session.snapshot import ThreeWaySnapshot, believe_sizes, is_directory, only

_TWIN = "{} ignores case and takes it for the same as {!r}; rename one"
_PATIENCE = 2  # tries at a file that changes while it is read; with many such files there is none


def decide(
    sides: ThreeWaySnapshot, wish: SyncOptions, restless: Mapping[str, int], listener: Listener
) -> Outcome:
    """What both sides need; contents that had to be known are known afterwards."""
    base, remote = _visible(sides, wish)
    _look_into(sides, wish, undecided(base, sides.local, remote, sides.doubt), base, listener)
    sides.local = sides.scan.tree
    remote = _leave_alone(sides, remote, _hopeless(restless))
    remote = _with_passed_over(sides, remote)
    if not wish.paths:
        return reconcile(base, sides.local, remote, wish.rules, sides.doubt)
    local = only(sides.local, wish.paths)
    return reconcile(only(base, wish.paths), local, only(remote, wish.paths), wish.rules)


def _look_into(
    sides: ThreeWaySnapshot, wish: SyncOptions, doubtful: list[str], base: Tree, listener: Listener
) -> None:
    if wish.by_size:
        believe_sizes(sides, base, doubtful)
        return
    listener.stage("hash", len(doubtful), sum(sides.local[path].size for path in doubtful))
    hash_files(sides.scan, doubtful, wish.jobs or THREADS)


def _hopeless(restless: Mapping[str, int]) -> list[str]:
    """One growing log must not keep all else from getting through, and neither must many of them."""
    many = sum(restless.values()) > 2 * _PATIENCE
    return [path for path, times in restless.items() if many or times > _PATIENCE]


def _leave_alone(sides: ThreeWaySnapshot, remote: Tree, restless: list[str]) -> Tree:
    """The other side's tree, with problems in place of what changes there; what changes here becomes one here."""
    problem = Entry(Kind.PROBLEM, target=CHANGING)
    here = [path for path in restless if path in sides.scan.tree]
    there = [path for path in restless if path not in sides.scan.tree and path in remote]
    sides.scan.tree.update(dict.fromkeys(here, problem))
    sides.scan.problems.update(dict.fromkeys(here, CHANGING))
    sides.changing_remotely.update(dict.fromkeys(there, CHANGING))
    return {**remote, **dict.fromkeys(there, problem)} if there else remote


def _with_passed_over(sides: ThreeWaySnapshot, remote: Tree) -> Tree:
    """What a program has put in the place of a file, no revision has; that is no reason to remove the file here."""
    found = {path: Entry(Kind.PROBLEM, target=why) for path, why in sides.passed_over.items()}
    return {**remote, **found} if found else remote


def _visible(sides: ThreeWaySnapshot, wish: SyncOptions) -> tuple[Tree, Tree]:
    """Base and remote without what is left out here: ignoring never removes on the other side."""
    ignore = ignore_of(wish.filter, sides.scan.levels)
    hidden = {
        path
        for path in sides.doubt
        if path not in sides.local
        and ignore.hides(path, is_directory(sides.remote, sides.base, path))
    }
    if not hidden:
        return sides.base, sides.remote
    base = {p: e for p, e in sides.base.items() if p not in hidden}
    return base, {p: e for p, e in sides.remote.items() if p not in hidden}


def guard(report: Report, sides: ThreeWaySnapshot, wish: SyncOptions) -> None:
    """Refuse what is in conflict, or removes many files unmeant; of a partial sync only that is left out."""
    outcome = report.outcome
    if wish.strict and report.skipped:
        report.refused = Refused.SKIPPED
    elif outcome.conflicts and not wish.partial:
        report.refused = Refused.CONFLICTS
    elif not wish.many_removals:
        _refuse_removals(report, sides, wish)


def refuse_newcomers(report: Report, sides: ThreeWaySnapshot, *, here: bool, there: bool) -> None:
    """Leave out new names that a side cannot hold, which ignores case: the one `here`, the one `there`, or both."""
    plan = report.outcome
    if here:
        found = newcomers(plan.to_local, sides.local)
        report.problems |= {p: _TWIN.format("this directory", other) for p, other in found.items()}
        plan = replace(plan, to_local=without(plan.to_local, found))
    if there:
        found = newcomers(plan.to_remote, sides.remote)
        report.problems |= {p: _TWIN.format("the cluster", other) for p, other in found.items()}
        plan = replace(plan, to_remote=without(plan.to_remote, found))
    report.outcome = plan


def _refuse_removals(report: Report, sides: ThreeWaySnapshot, wish: SyncOptions) -> None:
    outcome = report.outcome
    there = doubtful_removals(outcome.to_remote, sides.remote)
    here = doubtful_removals(outcome.to_local, sides.local)
    if not (there or here):
        return
    report.refused = Refused.REMOVALS
    report.withheld = tuple(change.path for change in (*there, *here))
    if wish.partial:
        report.outcome = replace(
            outcome,
            to_remote=without_removals(outcome.to_remote) if there else outcome.to_remote,
            to_local=without_removals(outcome.to_local) if here else outcome.to_local,
        )
