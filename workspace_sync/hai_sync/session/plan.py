"""Makes the plan of a sync from a snapshot: hash files where that is needed, reconcile, guard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hai_sync.core.entry import Entry, Kind, Tree
from hai_sync.core.guards import (
    colliding_paths,
    suspicious_removals,
    without_paths,
    without_removals,
)
from hai_sync.core.reconcile import needing_hashes, reconcile
from hai_sync.core.reconcile_options import Outcome
from hai_sync.errors import CHANGES_WHILE_READ
from hai_sync.hashing import THREADS, hash_files
from hai_sync.scan import ignore_of
from hai_sync.session.options import Listener, Refused, Report, SyncOptions
from hai_sync.session.snapshot import ThreeWaySnapshot, assume_equal_sizes, is_directory, only

_CASE_COLLISION = "{} ignores case and takes it for the same as {!r}; rename one"
_MAX_CHANGES = (
    2  # attempts at a file that changes while it is read; none if there are many such files
)


def make_plan(
    snapshot: ThreeWaySnapshot,
    options: SyncOptions,
    change_counts: Mapping[str, int],
    listener: Listener,
) -> Outcome:
    """The changes for both sides. Hashes the local files that the decision needs."""
    base, remote = _visible(snapshot, options)
    _hash_candidates(
        snapshot,
        options,
        needing_hashes(base, snapshot.local, remote, snapshot.may_differ),
        base,
        listener,
    )
    snapshot.local = snapshot.scan.tree
    remote = _mark_unstable(snapshot, remote, _unstable(change_counts))
    remote = _with_passed_over(snapshot, remote)
    if not options.paths:
        return reconcile(base, snapshot.local, remote, options.rules, snapshot.may_differ)
    local = only(snapshot.local, options.paths)
    return reconcile(only(base, options.paths), local, only(remote, options.paths), options.rules)


def _hash_candidates(
    snapshot: ThreeWaySnapshot,
    options: SyncOptions,
    candidates: list[str],
    base: Tree,
    listener: Listener,
) -> None:
    if options.by_size:
        assume_equal_sizes(snapshot, base, candidates)
        return
    listener.stage("hash", len(candidates), sum(snapshot.local[path].size for path in candidates))
    hash_files(snapshot.scan, candidates, options.jobs or THREADS)


def _unstable(change_counts: Mapping[str, int]) -> list[str]:
    """Files that change too often: growing logs must not block the sync of other files."""
    many = sum(change_counts.values()) > 2 * _MAX_CHANGES
    return [path for path, times in change_counts.items() if many or times > _MAX_CHANGES]


def _mark_unstable(snapshot: ThreeWaySnapshot, remote: Tree, unstable: list[str]) -> Tree:
    """Puts a problem in place of each unstable file: in the local tree, or in the remote tree, which is returned."""
    problem = Entry(Kind.PROBLEM, target=CHANGES_WHILE_READ)
    local_paths = [path for path in unstable if path in snapshot.scan.tree]
    remote_paths = [p for p in unstable if p not in snapshot.scan.tree and p in remote]
    snapshot.scan.tree.update(dict.fromkeys(local_paths, problem))
    snapshot.scan.problems.update(dict.fromkeys(local_paths, CHANGES_WHILE_READ))
    snapshot.changing_remotely.update(dict.fromkeys(remote_paths, CHANGES_WHILE_READ))
    return {**remote, **dict.fromkeys(remote_paths, problem)} if remote_paths else remote


def _with_passed_over(snapshot: ThreeWaySnapshot, remote: Tree) -> Tree:
    """Puts problems in the remote tree: a path that the server cannot sync must not count as removed."""
    found = {path: Entry(Kind.PROBLEM, target=why) for path, why in snapshot.passed_over.items()}
    return {**remote, **found} if found else remote


def _visible(snapshot: ThreeWaySnapshot, options: SyncOptions) -> tuple[Tree, Tree]:
    """Base and remote tree without paths that are ignored here: ignoring a path never removes it remotely."""
    ignore = ignore_of(options.filter, snapshot.scan.rule_sets)
    hidden = {
        path
        for path in snapshot.may_differ
        if path not in snapshot.local
        and ignore.is_hidden(path, is_directory(snapshot.remote, snapshot.base, path))
    }
    if not hidden:
        return snapshot.base, snapshot.remote
    base = {p: e for p, e in snapshot.base.items() if p not in hidden}
    return base, {p: e for p, e in snapshot.remote.items() if p not in hidden}


def guard(report: Report, snapshot: ThreeWaySnapshot, options: SyncOptions) -> None:
    """Refuses conflicts and removals of many files; a partial sync drops only those."""
    outcome = report.outcome
    if options.strict and report.skipped:
        report.refused = Refused.SKIPPED
    elif outcome.conflicts and not options.partial:
        report.refused = Refused.CONFLICTS
    elif not options.many_removals:
        _refuse_removals(report, snapshot, options)


def refuse_case_collisions(
    report: Report, snapshot: ThreeWaySnapshot, *, local: bool, remote: bool
) -> None:
    """Drops new names that collide on a side that ignores case: `local`, `remote`, or both."""
    plan = report.outcome
    if local:
        found = colliding_paths(plan.to_local, snapshot.local)
        report.problems |= {
            p: _CASE_COLLISION.format("this directory", other) for p, other in found.items()
        }
        plan = replace(plan, to_local=without_paths(plan.to_local, found))
    if remote:
        found = colliding_paths(plan.to_remote, snapshot.remote)
        report.problems |= {
            p: _CASE_COLLISION.format("the cluster", other) for p, other in found.items()
        }
        plan = replace(plan, to_remote=without_paths(plan.to_remote, found))
    report.outcome = plan


def _refuse_removals(report: Report, snapshot: ThreeWaySnapshot, options: SyncOptions) -> None:
    outcome = report.outcome
    from_remote = suspicious_removals(outcome.to_remote, snapshot.remote)
    from_local = suspicious_removals(outcome.to_local, snapshot.local)
    if not (from_remote or from_local):
        return
    report.refused = Refused.REMOVALS
    report.withheld = tuple(change.path for change in (*from_remote, *from_local))
    if options.partial:
        report.outcome = replace(
            outcome,
            to_remote=without_removals(outcome.to_remote) if from_remote else outcome.to_remote,
            to_local=without_removals(outcome.to_local) if from_local else outcome.to_local,
        )
