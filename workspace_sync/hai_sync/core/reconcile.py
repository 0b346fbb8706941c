"""Three-way merge: computes changes for both sides, and conflicts, from the base, the local and the remote tree.

The base is the tree that both sides had after the last sync. Where one side still equals it, the change of the other
side is applied; where both have changed and differ, the policy decides, and its default is to refuse. A push never
writes locally, a pull never remotely: changes in the other direction are listed as `other_side_only`. From the root
down, every decision covers a path and all paths below it:

1. A problem (unreadable, refused) on either side: nothing changes here.
2. Both are directories: their members decide.
3. Both are equal: nothing to do.
4. A directory that one side has removed: its members decide, and it stays if any of them does.
5. Only one side has changed: its changes are applied, with everything below.
6. Otherwise it is a conflict of this path and all paths below it.

In cases 4 to 6 one side has no directory here, so every path of the other side below it differs: the differing paths
alone are enough to decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hai_sync.core.diff import Change
from hai_sync.core.entry import DIRECTORY, Entry, Kind, Tree, is_within, parent
from hai_sync.core.names import conflict_copy_name
from hai_sync.core.reconcile_options import Conflict, Mode, Outcome, Policy, Rules


def reconcile(
    base: Tree, local: Tree, remote: Tree, rules: Rules, paths: Iterable[str] | None = None
) -> Outcome:
    """Decide for every path where the three trees differ. `paths` may be any superset of these paths."""
    reconciliation = _Reconciliation(base, local, remote, rules)
    for path in _with_ancestors(differing_paths(base, local, remote) if paths is None else paths):
        reconciliation.members.setdefault(parent(path), []).append(path)
    reconciliation.decide_members("")
    return reconciliation.outcome()


def rebase(base: Tree, local: Tree, remote: Tree, paths: Iterable[str]) -> Tree:
    """Return the base after a sync. At these paths it has the entry of both sides, if they are equal."""
    result = dict(base)
    for path in paths:
        local_entry, remote_entry = local.get(path), remote.get(path)
        if local_entry is None and remote_entry is None:
            result.pop(path, None)
        elif local_entry is not None and local_entry == remote_entry:
            result[path] = remote_entry if remote_entry is not None else local_entry
    return result


def differing_paths(base: Tree, local: Tree, remote: Tree) -> set[str]:
    """Return the paths where the three trees are not all equal."""
    found = {p for p, e in local.items() if (r := remote.get(p)) is not e and r != e}
    found |= {p for p in remote if p not in local}
    if base is remote:
        return found
    found |= {p for p, e in local.items() if (b := base.get(p)) is not e and b != e}
    return found | {p for p in base if p not in local}


def paths_to_hash(base: Tree, local: Tree, remote: Tree, paths: Iterable[str]) -> list[str]:
    """Return the local files that must be hashed before the decision.

    The other side has these files too, or has replaced a directory above them, so that they may become conflict
    copies. A file that changed only locally, to another size, is hashed when it is sent.
    """
    paths = list(paths)
    replaced_directories = [p for p in paths if _is(Kind.DIRECTORY, local.get(p)) and p in remote]
    replaced_directories = [p for p in replaced_directories if not _is(Kind.DIRECTORY, remote[p])]
    relevant = (
        p
        for p in paths
        if p in remote or p in base or any(is_within(p, top) for top in replaced_directories)
    )
    found = ((p, local.get(p)) for p in relevant)
    return [
        path
        for path, entry in found
        if entry is not None
        and not entry.hashed
        and not _changed_only_locally(base.get(path), remote.get(path), entry)
    ]


def _changed_only_locally(base: Entry | None, remote: Entry | None, entry: Entry) -> bool:
    """Return whether only the local file has changed, which its size proves. A former directory does not count."""
    if base is None or base != remote or base.kind is Kind.DIRECTORY:
        return False
    return base.size != entry.size


@dataclass(slots=True)
class _Reconciliation:
    """The state of one merge: its input, and the decisions made so far."""

    base: Tree
    local: Tree
    remote: Tree
    rules: Rules
    # differing paths by their directory
    members: dict[str, list[str]] = field(default_factory=dict)
    to_local: dict[str, Change] = field(default_factory=dict)
    to_remote: dict[str, Change] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    other_side_only: set[str] = field(default_factory=set)
    problems: set[str] = field(default_factory=set)
    copies: dict[str, str] = field(default_factory=dict)

    def outcome(self) -> Outcome:
        return Outcome(
            tuple(self.to_local[path] for path in sorted(self.to_local)),
            tuple(self.to_remote[path] for path in sorted(self.to_remote)),
            tuple(self.conflicts),
            tuple(sorted(self.other_side_only)),
            tuple(sorted(self.problems)),
            self.copies,
        )

    def decide_members(self, path: str) -> None:
        """Decide about the members of a directory, in order."""
        for member in sorted(self.members.get(path, ())):
            self.decide(member)

    def decide(self, path: str) -> None:
        """Decide about a path, by the cases in the module docstring."""
        base, local_entry, remote_entry = (
            self.base.get(path),
            self.local.get(path),
            self.remote.get(path),
        )
        if _is(Kind.PROBLEM, local_entry) or _is(Kind.PROBLEM, remote_entry):
            self.problems.add(path)
        elif _is(Kind.DIRECTORY, local_entry) and _is(Kind.DIRECTORY, remote_entry):
            self.decide_members(path)
        elif local_entry == remote_entry:
            # both are None or equal files, so that only the base may have paths below
            self.decide_members(path)
        elif (
            _is(Kind.DIRECTORY, base) and local_entry is None and _is(Kind.DIRECTORY, remote_entry)
        ):
            self.decide_removed(path, removed_locally=True)
        elif (
            _is(Kind.DIRECTORY, base) and remote_entry is None and _is(Kind.DIRECTORY, local_entry)
        ):
            self.decide_removed(path, removed_locally=False)
        elif not self.has_changed(self.remote, path):
            self.push_path(path)
        elif not self.has_changed(self.local, path):
            self.pull_path(path)
        else:
            self.resolve_conflict(path)

    def decide_removed(self, path: str, removed_locally: bool) -> None:
        """Decide the members first. The directory is removed if none of them stays, else both sides keep it."""
        self.decide_members(path)
        written_changes, other_tree = (
            (self.to_remote, self.remote) if removed_locally else (self.to_local, self.local)
        )
        inside = [p for p in self.paths_in(other_tree, path) if p != path]
        if all(p in written_changes and written_changes[p].new is None for p in inside):
            self.remove_directory(path, removed_locally)
        elif removed_locally:
            _bring_back(path, self.to_local)
        else:
            _bring_back(path, self.to_remote)

    def remove_directory(self, path: str, removed_locally: bool) -> None:
        if removed_locally:
            self.push_path(path)
        else:
            self.pull_path(path)

    def push_path(self, path: str) -> None:
        """Change the remote side to the local state, unless the mode forbids it."""
        changes = self.changes_between(path, self.remote, self.local)
        if self.rules.mode is not Mode.PULL:
            self.write(self.to_remote, changes)
        elif self.may_overwrite(path, read_tree=self.remote):  # a pull that discards local changes
            self.write_local(path)
        else:
            self.other_side_only.update(change.path for change in changes)

    def pull_path(self, path: str) -> None:
        """Change the local side to the remote state, unless the mode forbids it."""
        if self.rules.mode is not Mode.PUSH:
            self.write_local(path)
            return
        if self.may_overwrite(path, read_tree=self.local):  # a push that discards remote changes
            self.write(self.to_remote, self.changes_between(path, self.remote, self.local))
        else:
            self.other_side_only.update(
                c.path for c in self.changes_between(path, self.local, self.remote)
            )

    def write_local(self, path: str) -> None:
        """Change the local side to the remote state. Unreadable paths and directories above them are never removed."""
        if not self.has_problem(path):
            self.write(self.to_local, self.changes_between(path, self.local, self.remote))

    def has_problem(self, path: str) -> bool:
        """Return whether something at or below a path is unreadable. Such paths are reported."""
        found = [p for p in self.paths_in(self.local, path) if _is(Kind.PROBLEM, self.local[p])]
        self.problems.update(found)
        return bool(found)

    def may_overwrite(self, path: str, read_tree: Tree) -> bool:
        """Return whether the options allow discarding a change that only the written side has made."""
        if path in read_tree:
            return self.rules.overwrite
        return self.rules.mirror

    def write(self, side: dict[str, Change], changes: Sequence[Change]) -> None:
        """Add changes of one path and all paths below it. The first change is that of the topmost path."""
        blocked = not self.rules.removals and changes[0].new is None
        for change in changes:
            if _is(Kind.PROBLEM, change.new) or _is(Kind.PROBLEM, change.old):
                self.problems.add(change.path)
            elif blocked:
                self.other_side_only.add(change.path)
            else:
                side[change.path] = change

    def resolve_conflict(self, path: str) -> None:
        """Apply the policy to a path that both sides have changed."""
        policy = self.rules.policy_of(path)
        if policy is Policy.NEWER:
            policy = self.newer_side(path)
        if policy is Policy.LOCAL:
            self.push_path(path)
        elif policy is Policy.REMOTE:
            self.pull_path(path)
        elif policy is Policy.KEEP_BOTH:
            self.keep_both(path)
        else:
            local = {p: self.local[p] for p in self.paths_in(self.local, path)}
            remote = {p: self.remote[p] for p in self.paths_in(self.remote, path)}
            self.conflicts.append(Conflict(path, self.base.get(path), local, remote))

    def newer_side(self, path: str) -> Policy:
        """Return the policy that favours the newer side. A removal has no time, so the other side counts as newer."""
        # the newest modification time of each side; -1 for a removal
        local_entry = max(
            (self.local[p].mtime_ns for p in self.paths_in(self.local, path)), default=-1
        )
        remote_entry = max(
            (self.remote[p].mtime_ns for p in self.paths_in(self.remote, path)), default=-1
        )
        if local_entry == remote_entry:
            return Policy.REFUSE
        return Policy.LOCAL if local_entry > remote_entry else Policy.REMOTE

    def keep_both(self, path: str) -> None:
        """Let the remote version keep its name. The local one becomes a conflict copy on each side that is written."""
        if path not in self.remote:
            self.push_path(path)
        elif path not in self.local:
            self.pull_path(path)
        elif self.rules.mode is Mode.PUSH:
            if not self.has_conflict_copy(path):
                self.add_conflict_copy(path)
        elif not self.has_problem(path):  # otherwise each sync would add another copy
            self.add_conflict_copy(path)
            self.write_local(path)

    def has_conflict_copy(self, path: str) -> bool:
        """Return whether an earlier push has added the conflict copy. Locally, the rename happens only with a pull."""
        local_entry = self.local[path]
        copy = self.remote.get(conflict_copy_name(path, local_entry, lambda name: False))
        content = local_entry.kind, local_entry.digest, local_entry.target
        return copy is not None and content == (copy.kind, copy.digest, copy.target)

    def add_conflict_copy(self, path: str) -> None:
        """Add the conflict copy of the local version, with everything below it."""
        copy = conflict_copy_name(path, self.local[path], self.is_taken)
        for old in self.paths_in(self.local, path):
            new = copy + old[len(path) :]
            change = Change(new, None, self.local[old])
            self.copies[new] = old
            if self.rules.mode is not Mode.PUSH:
                self.write(self.to_local, [change])
            if self.rules.mode is not Mode.PULL:
                self.write(self.to_remote, [change])

    def is_taken(self, path: str) -> bool:
        return any(path in tree for tree in (self.base, self.local, self.remote))

    def has_changed(self, tree: Tree, path: str) -> bool:
        """Return whether a tree differs from the base at or below a path, where both sides are not equal."""
        base, local, remote = self.base, self.local, self.remote
        if path not in tree and path not in base:
            return False  # then nothing below it exists either
        return any(
            tree.get(p) != base.get(p) and local.get(p) != remote.get(p)
            for p in self.differing_below(path)
        )

    def paths_in(self, tree: Tree, path: str) -> list[str]:
        """Return the differing paths of a tree at or below a path."""
        return [p for p in self.differing_below(path) if p in tree]

    def changes_between(self, path: str, old: Tree, new: Tree) -> list[Change]:
        """Return the changes that turn one tree into the other at and below a path."""
        pairs = ((p, old.get(p), new.get(p)) for p in self.differing_below(path))
        return [Change(p, before, after) for p, before, after in pairs if before != after]

    def differing_below(self, path: str) -> list[str]:
        """Return a path and the differing paths below it, each after its directory."""
        found, members = [path], self.members
        for each in found:  # the list grows during the iteration
            if each in members:
                found += members[each]
        return found


def _bring_back(path: str, side: dict[str, Change]) -> None:
    """Create the removed directory again on a side that gets a new member of it."""
    if any(c.new is not None and is_within(c.path, path) for c in side.values()):
        side[path] = Change(path, None, DIRECTORY)


def _with_ancestors(paths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        while path and path not in found:
            found.add(path)
            path = parent(path)
    return found


def _is(kind: Kind, entry: Entry | None) -> bool:
    return entry is not None and entry.kind is kind
