"""Three trees in, changes for both sides and conflicts out. Knows no disk, no network, no clock.

The base is what both sides agreed on last time. Where one side still equals it, the other side's
change is taken; where both have changed and differ, the policy decides, and its default is to refuse.
A pushing caller never writes locally, a pulling one never remotely: what would go the other way is
`held`, and stays as it is. From the root down, every decision is about a path and all below it:

1. A problem (unreadable, refused) on either side: left alone, with what lies below.
2. Both are directories: their members decide.
3. Both are the same: agreed.
4. A directory that one side has removed: its members decide, and it stays if any of them does.
5. Only one side has changed anything here: its change is taken, with everything below.
6. Else it is a conflict of this path and all below it.

At 4 to 6 one side has no directory here, so everything that the other has below differs: the
differing paths alone tell all that there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hai_sync.core.diff import Change
from hai_sync.core.entry import DIRECTORY, Entry, Kind, Tree, below, parent
from hai_sync.core.names import copy_name
from hai_sync.core.rules import Conflict, Mode, Outcome, Policy, Rules


def reconcile(
    base: Tree, local: Tree, remote: Tree, rules: Rules, paths: Iterable[str] | None = None
) -> Outcome:
    """Decide for every path where the three differ; `paths`, if known already, are at least those."""
    work = _Work(base, local, remote, rules)
    for path in _with_ancestors(differing(base, local, remote) if paths is None else paths):
        work.members.setdefault(parent(path), []).append(path)
    work.decide_members("")
    return work.outcome()


def rebase(base: Tree, local: Tree, remote: Tree, paths: Iterable[str]) -> Tree:
    """The base after a sync: at these paths what both sides agree on, if they do."""
    result = dict(base)
    for path in paths:
        ours, theirs = local.get(path), remote.get(path)
        if ours is None and theirs is None:
            result.pop(path, None)
        elif ours is not None and ours == theirs:
            result[path] = theirs if theirs is not None else ours
    return result


def differing(base: Tree, local: Tree, remote: Tree) -> set[str]:
    """Paths where not all three are the same."""
    found = {p for p, e in local.items() if (r := remote.get(p)) is not e and r != e}
    found |= {p for p in remote if p not in local}
    if base is remote:
        return found
    found |= {p for p, e in local.items() if (b := base.get(p)) is not e and b != e}
    return found | {p for p in base if p not in local}


def undecided(base: Tree, local: Tree, remote: Tree, paths: Iterable[str]) -> list[str]:
    """Files whose content must be known before anything can be decided: another side has them too, or has something
    else in the place of a directory that they lie in, so that they may get another name here.

    One that only we have changed, to another size, is read when it is sent.
    """
    paths = list(paths)
    lost = [p for p in paths if _is(Kind.DIRECTORY, local.get(p)) and p in remote]
    lost = [p for p in lost if not _is(Kind.DIRECTORY, remote[p])]
    here = (p for p in paths if p in remote or p in base or any(below(p, top) for top in lost))
    found = ((p, local.get(p)) for p in here)
    return [
        path
        for path, entry in found
        if entry is not None
        and not entry.hashed
        and not _clearly_ours(base.get(path), remote.get(path), entry)
    ]


def _clearly_ours(base: Entry | None, remote: Entry | None, entry: Entry) -> bool:
    """What was a directory may have changed inside."""
    if base is None or base != remote or base.kind is Kind.DIRECTORY:
        return False
    return base.size != entry.size


@dataclass(slots=True)
class _Work:
    base: Tree
    local: Tree
    remote: Tree
    rules: Rules
    members: dict[str, list[str]] = field(default_factory=dict)  # differing paths, by directory
    to_local: dict[str, Change] = field(default_factory=dict)
    to_remote: dict[str, Change] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    problems: set[str] = field(default_factory=set)
    copies: dict[str, str] = field(default_factory=dict)

    def outcome(self) -> Outcome:
        return Outcome(
            tuple(self.to_local[path] for path in sorted(self.to_local)),
            tuple(self.to_remote[path] for path in sorted(self.to_remote)),
            tuple(self.conflicts),
            tuple(sorted(self.held)),
            tuple(sorted(self.problems)),
            self.copies,
        )

    def decide_members(self, path: str) -> None:
        for member in sorted(self.members.get(path, ())):
            self.decide(member)

    def decide(self, path: str) -> None:
        base, ours, theirs = self.base.get(path), self.local.get(path), self.remote.get(path)
        if _is(Kind.PROBLEM, ours) or _is(Kind.PROBLEM, theirs):
            self.problems.add(path)
        elif _is(Kind.DIRECTORY, ours) and _is(Kind.DIRECTORY, theirs):
            self.decide_members(path)
        elif ours == theirs:
            self.decide_members(path)  # both None, or the same file: nothing is below but history
        elif _is(Kind.DIRECTORY, base) and ours is None and _is(Kind.DIRECTORY, theirs):
            self.decide_removed(path, by_us=True)
        elif _is(Kind.DIRECTORY, base) and theirs is None and _is(Kind.DIRECTORY, ours):
            self.decide_removed(path, by_us=False)
        elif not self.changed(self.remote, path):
            self.take_local(path)
        elif not self.changed(self.local, path):
            self.take_remote(path)
        else:
            self.settle(path)

    def decide_removed(self, path: str, by_us: bool) -> None:
        """Members first; the directory goes too if none of them stays, else it is needed by all."""
        self.decide_members(path)
        written, keeper = (self.to_remote, self.remote) if by_us else (self.to_local, self.local)
        inside = [p for p in self.here(keeper, path) if p != path]
        if all(p in written and written[p].new is None for p in inside):
            self.remove_directory(path, by_us)
        elif by_us:
            _bring_back(path, self.to_local)
        else:
            _bring_back(path, self.to_remote)

    def remove_directory(self, path: str, by_us: bool) -> None:
        if by_us:
            self.take_local(path)
        else:
            self.take_remote(path)

    def take_local(self, path: str) -> None:
        """Make the remote side as ours, or hold it."""
        changes = self.replacing(path, self.remote, self.local)
        if self.rules.mode is not Mode.PULL:
            self.write(self.to_remote, changes)
        elif self.gives_way(path, read=self.remote):
            self.take_over_local(path)
        else:
            self.held.update(change.path for change in changes)

    def take_remote(self, path: str) -> None:
        """Make our side as the remote one, or hold it."""
        if self.rules.mode is not Mode.PUSH:
            self.take_over_local(path)
            return
        if self.gives_way(path, read=self.local):
            self.write(self.to_remote, self.replacing(path, self.remote, self.local))
        else:
            self.held.update(c.path for c in self.replacing(path, self.local, self.remote))

    def take_over_local(self, path: str) -> None:
        """What cannot be read is never removed, nor what holds it."""
        if not self.troubled(path):
            self.write(self.to_local, self.replacing(path, self.local, self.remote))

    def troubled(self, path: str) -> bool:
        """Whether something here cannot be read; then it is told."""
        found = [p for p in self.here(self.local, path) if _is(Kind.PROBLEM, self.local[p])]
        self.problems.update(found)
        return bool(found)

    def gives_way(self, path: str, read: Tree) -> bool:
        """True when the written side loses a change that is its alone."""
        if path in read:
            return self.rules.overwrite
        return self.rules.mirror

    def write(self, side: dict[str, Change], changes: Sequence[Change]) -> None:
        """The first change is the topmost: members of what it replaces go with it."""
        stays = not self.rules.removals and changes[0].new is None
        for change in changes:
            if _is(Kind.PROBLEM, change.new) or _is(Kind.PROBLEM, change.old):
                self.problems.add(change.path)
            elif stays:
                self.held.add(change.path)
            else:
                side[change.path] = change

    def settle(self, path: str) -> None:
        """Both have changed: the policy's turn."""
        policy = self.rules.policy_of(path)
        if policy is Policy.NEWER:
            policy = self.newer(path)
        if policy is Policy.LOCAL:
            self.take_local(path)
        elif policy is Policy.REMOTE:
            self.take_remote(path)
        elif policy is Policy.KEEP_BOTH:
            self.keep_both(path)
        else:
            local = {p: self.local[p] for p in self.here(self.local, path)}
            remote = {p: self.remote[p] for p in self.here(self.remote, path)}
            self.conflicts.append(Conflict(path, self.base.get(path), local, remote))

    def newer(self, path: str) -> Policy:
        """Who changed last. What was removed has no time, so what is left counts as newer."""
        ours = max((self.local[p].mtime_ns for p in self.here(self.local, path)), default=-1)
        theirs = max((self.remote[p].mtime_ns for p in self.here(self.remote, path)), default=-1)
        if ours == theirs:
            return Policy.REFUSE
        return Policy.LOCAL if ours > theirs else Policy.REMOTE

    def keep_both(self, path: str) -> None:
        """Theirs keeps its name, ours gets another one on the sides that are written."""
        if path not in self.remote:
            self.take_local(path)
        elif path not in self.local:
            self.take_remote(path)
        elif self.rules.mode is Mode.PUSH:
            if not self.is_copied(path):
                self.copy_ours(path)
        elif not self.troubled(path):  # else ours would be copied again by each sync
            self.copy_ours(path)
            self.take_over_local(path)

    def is_copied(self, path: str) -> bool:
        """Whether a push before this one has brought ours there: theirs takes its name here only when it is pulled."""
        ours = self.local[path]
        copy = self.remote.get(copy_name(path, ours, lambda name: False))
        what = ours.kind, ours.digest, ours.target
        return copy is not None and what == (copy.kind, copy.digest, copy.target)

    def copy_ours(self, path: str) -> None:
        copy = copy_name(path, self.local[path], self.is_taken)
        for old in self.here(self.local, path):
            new = copy + old[len(path) :]
            change = Change(new, None, self.local[old])
            self.copies[new] = old
            if self.rules.mode is not Mode.PUSH:
                self.write(self.to_local, [change])
            if self.rules.mode is not Mode.PULL:
                self.write(self.to_remote, [change])

    def is_taken(self, path: str) -> bool:
        return any(path in tree for tree in (self.base, self.local, self.remote))

    def changed(self, tree: Tree, path: str) -> bool:
        """True when a tree differs from the base at a path or below it, where both sides do not agree."""
        base, local, remote = self.base, self.local, self.remote
        if path not in tree and path not in base:
            return False  # nor is anything below
        return any(
            tree.get(p) != base.get(p) and local.get(p) != remote.get(p)
            for p in self.differing_below(path)
        )

    def here(self, tree: Tree, path: str) -> list[str]:
        """What a tree has at a path and below it."""
        return [p for p in self.differing_below(path) if p in tree]

    def replacing(self, path: str, old: Tree, new: Tree) -> list[Change]:
        """What makes one tree's part the other's."""
        pairs = ((p, old.get(p), new.get(p)) for p in self.differing_below(path))
        return [Change(p, before, after) for p, before, after in pairs if before != after]

    def differing_below(self, path: str) -> list[str]:
        """The path and what differs below it, each after its directory."""
        found, members = [path], self.members
        for each in found:  # grows while it is walked
            if each in members:
                found += members[each]
        return found


def _bring_back(path: str, side: dict[str, Change]) -> None:
    """A side that gets a new member needs the directory again."""
    if any(c.new is not None and below(c.path, path) for c in side.values()):
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
