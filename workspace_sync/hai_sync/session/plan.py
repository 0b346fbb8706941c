"""Makes the plan of a sync from a snapshot: hashes files if necessary, reconciles, and applies guards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hai_sync.core.entry import Entry, Kind, Tree
from hai_sync.core.guards import (
    find_case_collisions,
    find_suspicious_removals,
    without_paths,
    without_removals,
)
from hai_sync.core.reconcile import paths_to_hash, reconcile
from hai_sync.core.reconcile_options import Outcome
from hai_sync.errors import CHANGES_WHILE_READ
from hai_sync.hashing import THREADS, hash_files
from hai_sync.scan import build_ignore
from hai_sync.session.options import Listener, Refused, Report, SyncOptions
from hai_sync.session.snapshot import (
    ThreeWaySnapshot,
    assume_equal_by_size,
    is_directory,
    restrict_tree,
)

# the side that ignores case, and the existing name
_CASE_COLLISION = "{} ignores case and takes it for the same as {!r}; rename one"
_MAX_CHANGES = (
    2  # attempts to read a file that changes meanwhile; fewer if there are many such files
)


def make_plan(
    snapshot: ThreeWaySnapshot,
    options: SyncOptions,
    change_counts: Mapping[str, int],
    listener: Listener,
) -> Outcome:
    """Return the changes for both sides. This hashes the local files that the decision needs."""
    base, remote = _visible_trees(snapshot, options)
    _hash_or_assume_equal(
        snapshot,
        options,
        paths_to_hash(base, snapshot.local, remote, snapshot.may_differ),
        base,
        listener,
    )
    snapshot.local = snapshot.scan.tree
    remote = _mark_unstable(snapshot, remote, _select_unstable(change_counts))
    remote = _mark_passed_over(snapshot, remote)
    if not options.paths:
        return reconcile(base, snapshot.local, remote, options.rules, snapshot.may_differ)
    local = restrict_tree(snapshot.local, options.paths)
    return reconcile(
        restrict_tree(base, options.paths),
        local,
        restrict_tree(remote, options.paths),
        options.rules,
    )


def _hash_or_assume_equal(
    snapshot: ThreeWaySnapshot,
    options: SyncOptions,
    candidates: list[str],
    base: Tree,
    listener: Listener,
) -> None:
    """Hash the candidates or, with --no_checksum, compare their sizes only."""
    if options.by_size:
        assume_equal_by_size(snapshot, base, candidates)
        return
    listener.stage("hash", len(candidates), sum(snapshot.local[path].size for path in candidates))
    hash_files(snapshot.scan, candidates, options.jobs or THREADS)


def _select_unstable(change_counts: Mapping[str, int]) -> list[str]:
    """Return the files that change too often. Growing logs must not block the sync of other files."""
    many = sum(change_counts.values()) > 2 * _MAX_CHANGES
    return [path for path, times in change_counts.items() if many or times > _MAX_CHANGES]


def _mark_unstable(snapshot: ThreeWaySnapshot, remote: Tree, unstable: list[str]) -> Tree:
    """Replace each unstable file by a problem, in the local tree or in the remote tree, which is returned."""
    problem = Entry(Kind.PROBLEM, target=CHANGES_WHILE_READ)
    local_paths = [path for path in unstable if path in snapshot.scan.tree]
    remote_paths = [p for p in unstable if p not in snapshot.scan.tree and p in remote]
    snapshot.scan.tree.update(dict.fromkeys(local_paths, problem))
    snapshot.scan.problems.update(dict.fromkeys(local_paths, CHANGES_WHILE_READ))
    snapshot.changing_remotely.update(dict.fromkeys(remote_paths, CHANGES_WHILE_READ))
    return {**remote, **dict.fromkeys(remote_paths, problem)} if remote_paths else remote


def _mark_passed_over(snapshot: ThreeWaySnapshot, remote: Tree) -> Tree:
    """Return the remote tree with a problem for each path that the server cannot sync: such a path is not removed."""
    found = {
        path: Entry(Kind.PROBLEM, target=reason) for path, reason in snapshot.passed_over.items()
    }
    return {**remote, **found} if found else remote


def _visible_trees(snapshot: ThreeWaySnapshot, options: SyncOptions) -> tuple[Tree, Tree]:
    """Return base and remote tree without paths that are ignored here. Ignoring a path never removes it remotely."""
    ignore = build_ignore(options.filter, snapshot.scan.rule_sets)
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


def apply_guards(report: Report, snapshot: ThreeWaySnapshot, options: SyncOptions) -> None:
    """Refuse conflicts and removals of many files. A partial sync drops only those."""
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
    """Drop new names that collide on a side that ignores case: `local`, `remote`, or both."""
    plan = report.outcome
    if local:
        found = find_case_collisions(plan.to_local, snapshot.local)
        report.problems |= {
            p: _CASE_COLLISION.format("this directory", other) for p, other in found.items()
        }
        plan = replace(plan, to_local=without_paths(plan.to_local, found))
    if remote:
        found = find_case_collisions(plan.to_remote, snapshot.remote)
        report.problems |= {
            p: _CASE_COLLISION.format("the cluster", other) for p, other in found.items()
        }
        plan = replace(plan, to_remote=without_paths(plan.to_remote, found))
    report.outcome = plan


def _refuse_removals(report: Report, snapshot: ThreeWaySnapshot, options: SyncOptions) -> None:
    """Refuse suspicious removals. A partial sync keeps all other changes."""
    outcome = report.outcome
    from_remote = find_suspicious_removals(outcome.to_remote, snapshot.remote)
    from_local = find_suspicious_removals(outcome.to_local, snapshot.local)
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
