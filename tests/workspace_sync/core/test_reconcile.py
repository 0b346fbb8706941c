# ruff: noqa: E501 (tables: one case a line)
"""Tests of the three-way merge: tables of named cases for modes and policies, and properties of all trees.

An outcome is written as one sorted line: R+a R~a R-a (created, modified, removed remotely), L… the
same locally, !a a conflict, .a a change of the other side only, #a a problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_sync.core.diff import Change, apply_changes, diff, order_changes
from hai_sync.core.entry import DIRECTORY, UNHASHED, Entry, Kind, Tree, ancestors, parent
from hai_sync.core.reconcile import differing_paths, paths_to_hash, rebase, reconcile
from hai_sync.core.reconcile_options import Mode, Outcome, Policy, Rules

Builder = Callable[[str], Tree]
SIGN = {"create": "+", "modify": "~", "remove": "-"}

# name, base, local, remote, and the outcomes of sync, push and pull
TABLE = [
    ("nothing anywhere", "", "", "", "", "", ""),
    ("all the same", "a=1", "a=1", "a=1", "", "", ""),
    ("the same directory", "d/ d/x=1", "d/ d/x=1", "d/ d/x=1", "", "", ""),
    ("first sync, equal on both sides", "", "a=1", "a=1", "", "", ""),
    ("both made the same change", "a=1", "a=2", "a=2", "", "", ""),
    ("both removed it", "a=1", "", "", "", "", ""),
    ("both removed a directory", "d/ d/x=1", "", "", "", "", ""),
    ("only times differ", "a=1@1", "a=1@2", "a=1@3", "", "", ""),
    ("we created", "", "a=1", "", "R+a", "R+a", ".a"),
    ("they created", "", "", "a=1", "L+a", ".a", "L+a"),
    ("we modified", "a=1", "a=2", "a=1", "R~a", "R~a", ".a"),
    ("they modified", "a=1", "a=1", "a=2", "L~a", ".a", "L~a"),
    ("we removed", "a=1", "", "a=1", "R-a", "R-a", ".a"),
    ("they removed", "a=1", "a=1", "", "L-a", ".a", "L-a"),
    ("we made it executable", "a=1", "a*=1", "a=1", "R~a", "R~a", ".a"),
    ("they made it executable", "a=1", "a=1", "a*=1", "L~a", ".a", "L~a"),
    ("both modified", "a=1", "a=2", "a=3", "!a", "!a", "!a"),
    ("both created differently", "", "a=1", "a=2", "!a", "!a", "!a"),
    ("mode here, content there", "a=1", "a*=1", "a=2", "!a", "!a", "!a"),
    ("we modified, they removed", "a=1", "a=2", "", "!a", "!a", "!a"),
    ("we removed, they modified", "a=1", "", "a=2", "!a", "!a", "!a"),
    ("we created a directory", "", "d/", "", "R+d", "R+d", ".d"),
    ("they created a directory", "", "", "d/", "L+d", ".d", "L+d"),
    ("we created a full directory", "", "d/ d/x=1", "", "R+d R+d/x", "R+d R+d/x", ".d .d/x"),
    ("they created a full directory", "", "", "d/ d/x=1", "L+d L+d/x", ".d .d/x", "L+d L+d/x"),
    ("both created a directory", "", "d/ d/x=1", "d/ d/y=2", "L+d/y R+d/x", ".d/y R+d/x", ".d/x L+d/y"),
    ("both created a member", "d/", "d/ d/x=1", "d/ d/x=2", "!d/x", "!d/x", "!d/x"),
    ("an empty directory went here", "d/", "", "d/", "R-d", "R-d", ".d"),
    ("an empty directory went there", "d/", "d/", "", "L-d", ".d", "L-d"),
    ("a full directory went here", "d/ d/x=1", "", "d/ d/x=1", "R-d R-d/x", "R-d R-d/x", ".d/x"),
    ("a full directory went there", "d/ d/x=1", "d/ d/x=1", "", "L-d L-d/x", ".d/x", "L-d L-d/x"),
    ("it went here, a member is new there", "d/ d/x=1", "", "d/ d/x=1 d/y=2", "L+d L+d/y R-d/x", ".d/y R-d/x", ".d/x L+d L+d/y"),
    ("it went there, a member is new here", "d/ d/x=1", "d/ d/x=1 d/y=2", "", "L-d/x R+d R+d/y", ".d/x R+d R+d/y", ".d/y L-d/x"),
    ("it went here, a member changed there", "d/ d/x=1", "", "d/ d/x=2", "!d/x", "!d/x", "!d/x"),
    ("it went there, a member changed here", "d/ d/x=1", "d/ d/x=2", "", "!d/x", "!d/x", "!d/x"),
    ("a deep directory went here, new below there", "d/ d/e/ d/e/x=1", "", "d/ d/e/ d/e/x=1 d/e/y=2", "L+d L+d/e L+d/e/y R-d/e/x", ".d/e/y R-d/e/x", ".d/e/x L+d L+d/e L+d/e/y"),
    ("two deep directories went", "d/ d/e/ d/e/x=1", "", "d/ d/e/ d/e/x=1", "R-d R-d/e R-d/e/x", "R-d R-d/e R-d/e/x", ".d/e/x"),
    ("a file became a directory here", "a=1", "a/ a/x=2", "a=1", "R+a/x R~a", "R+a/x R~a", ".a .a/x"),
    ("a file became a directory there", "a=1", "a=1", "a/ a/x=2", "L+a/x L~a", ".a .a/x", "L+a/x L~a"),
    ("a directory became a file here", "d/ d/x=1", "d=2", "d/ d/x=1", "R-d/x R~d", "R-d/x R~d", ".d .d/x"),
    ("a directory became a file there", "d/ d/x=1", "d/ d/x=1", "d=2", "L-d/x L~d", ".d .d/x", "L-d/x L~d"),
    ("file here, directory there", "", "a=1", "a/ a/x=2", "!a", "!a", "!a"),
    ("directory became a file here, changed there", "d/ d/x=1", "d=2", "d/ d/x=3", "!d", "!d", "!d"),
    ("directory became a file there, new member here", "d/", "d/ d/x=1", "d=2", "!d", "!d", "!d"),
    ("file became directory here, went there", "a=1", "a/ a/x=2", "", "!a", "!a", "!a"),
    ("file went here, became directory there", "a=1", "", "a/ a/x=2", "!a", "!a", "!a"),
    ("we created a link", "", "l>a", "", "R+l", "R+l", ".l"),
    ("they turned a link", "l>a", "l>a", "l>b", "L~l", ".l", "L~l"),
    ("both turned a link", "l>a", "l>b", "l>c", "!l", "!l", "!l"),
    ("a link became a file here", "l>a", "l=1", "l>a", "R~l", "R~l", ".l"),
    ("a member went there, a file in its place here", "d/ d/x=1", "d=2", "d/", "R~d", "R~d", ".d"),
    ("link here, file there", "", "l>a", "l=1", "!l", "!l", "!l"),
    ("a problem here, nothing there", "", "p!", "", "#p", "#p", "#p"),
    ("a problem here, known there", "p=1", "p!", "p=1", "#p", "#p", "#p"),
    ("a problem here, changed there", "p=1", "p!", "p=2", "#p", "#p", "#p"),
    ("a problem here, removed there", "p=1", "p!", "", "#p", "#p", "#p"),
    ("a problem is no removal of what is below", "d/ d/x=1", "d!", "d/ d/x=1", "#d", "#d", "#d"),
    ("a problem in a new directory", "", "d/ d/p! d/x=1", "", "#d/p R+d R+d/x", "#d/p R+d R+d/x", ".d .d/p .d/x"),
    ("a problem in a directory that went there", "d/ d/x=1", "d/ d/p! d/x=1", "", "#d/p L-d/x", "#d/p .d/x", "#d/p L-d/x"),
    ("beside a problem all goes on", "p=1 a=1", "p! a=2", "p=1 a=1", "#p R~a", "#p R~a", "#p .a"),
    ("no base, one differs, one is new", "", "a=1 b=1", "a=2 c=3", "!a L+c R+b", "!a .c R+b", "!a .b L+c"),
    ("both work in different files", "a=1 b=1", "a=2 b=1", "a=1 b=2", "L~b R~a", ".b R~a", ".a L~b"),
    ("a rename here", "a=1", "b=1", "a=1", "R+b R-a", "R+b R-a", ".a .b"),
    ("a rename here, a change there", "a=1", "b=1", "a=2", "!a R+b", "!a R+b", "!a .b"),
    ("the same rename on both sides", "a=1", "b=1", "b=1", "", "", ""),
    ("names that begin alike", "d/ d/x=1 d.x=1", "d.x=1", "d/ d/x=1 d.x=2", "L~d.x R-d R-d/x", ".d.x R-d R-d/x", ".d/x L~d.x"),
]  # fmt: skip

CASES = [
    pytest.param(base, local, remote, mode, expected, id=f"{name} ({mode})")
    for name, base, local, remote, sync, push, pull in TABLE
    for mode, expected in ((Mode.SYNC, sync), (Mode.PUSH, push), (Mode.PULL, pull))
]

# name, rules, base, local, remote, outcome
RULED = [
    ("ours wins a sync", Rules(policy=Policy.LOCAL), "a=1", "a=2", "a=3", "R~a"),
    ("theirs wins a sync", Rules(policy=Policy.REMOTE), "a=1", "a=2", "a=3", "L~a"),
    ("ours wins a push", Rules(Mode.PUSH, Policy.LOCAL), "a=1", "a=2", "a=3", "R~a"),
    ("theirs wins a push: nothing is written", Rules(Mode.PUSH, Policy.REMOTE), "a=1", "a=2", "a=3", ".a"),
    ("theirs wins a pull", Rules(Mode.PULL, Policy.REMOTE), "a=1", "a=2", "a=3", "L~a"),
    ("ours wins a pull: nothing is written", Rules(Mode.PULL, Policy.LOCAL), "a=1", "a=2", "a=3", ".a"),
    ("our removal wins", Rules(policy=Policy.LOCAL), "a=1", "", "a=3", "R-a"),
    ("their removal wins", Rules(policy=Policy.REMOTE), "a=1", "a=2", "", "L-a"),
    ("the newer is ours", Rules(policy=Policy.NEWER), "a=1", "a=2@9", "a=3@5", "R~a"),
    ("the newer is theirs", Rules(policy=Policy.NEWER), "a=1", "a=2@5", "a=3@9", "L~a"),
    ("of the same age: nobody", Rules(policy=Policy.NEWER), "a=1", "a=2@5", "a=3@5", "!a"),
    ("what is left is newer than a removal", Rules(policy=Policy.NEWER), "a=1", "", "a=3@5", "L+a"),
    ("the newest member of a directory counts", Rules(policy=Policy.NEWER), "", "a=1@5", "a/ a/x=1@2 a/y=1@7", "L+a/x L+a/y L~a"),
    ("both are kept", Rules(policy=Policy.KEEP_BOTH), "a.py=1", "a.py=2", "a.py=3", "L+a.conflict-C.py L~a.py R+a.conflict-C.py"),
    ("both are kept by a push", Rules(Mode.PUSH, Policy.KEEP_BOTH), "a.py=1", "a.py=2", "a.py=3", "R+a.conflict-C.py"),
    ("both are kept by a pull", Rules(Mode.PULL, Policy.KEEP_BOTH), "a.py=1", "a.py=2", "a.py=3", "L+a.conflict-C.py L~a.py"),
    ("of an edit and a removal the edit is kept", Rules(policy=Policy.KEEP_BOTH), "a=1", "", "a=2", "L+a"),
    ("of a removal and an edit too", Rules(policy=Policy.KEEP_BOTH), "a=1", "a=2", "", "R+a"),
    ("a directory is kept beside a file", Rules(policy=Policy.KEEP_BOTH), "", "a/ a/x=1", "a=2", "L+a.conflict-directory L+a.conflict-directory/x L-a/x L~a R+a.conflict-directory R+a.conflict-directory/x"),
    ("a path has a policy of its own", Rules(per_path=(("d", Policy.LOCAL),)), "", "d/ d/x=1 y=1", "d/ d/x=2 y=2", "!y R~d/x"),
    ("the innermost policy counts", Rules(per_path=(("d", Policy.LOCAL), ("d/e", Policy.REMOTE))), "", "d/ d/e/ d/e/x=1", "d/ d/e/ d/e/x=2", "L~d/e/x"),
    ("a mirror removes what only they have", Rules(Mode.PUSH, mirror=True), "", "a=1", "b=2", "R+a R-b"),
    ("a pulled mirror removes what only we have", Rules(Mode.PULL, mirror=True), "", "a=1", "b=2", "L+b L-a"),
    ("a mirror does not overwrite", Rules(Mode.PUSH, mirror=True), "a=1", "a=1", "a=2", ".a"),
    ("overwriting takes back their change", Rules(Mode.PUSH, overwrite=True), "a=1", "a=1", "a=2", "R~a"),
    ("overwriting takes back our change", Rules(Mode.PULL, overwrite=True), "a=1", "a=2", "a=1", "L~a"),
    ("overwriting brings back what we removed", Rules(Mode.PULL, overwrite=True), "a=1", "", "a=1", "L+a"),
    ("overwriting brings back what they removed", Rules(Mode.PUSH, overwrite=True), "a=1", "a=1", "", "R+a"),
    ("overwriting keeps what only they have", Rules(Mode.PUSH, overwrite=True), "", "", "a=1", ".a"),
    ("without removals nothing goes", Rules(removals=False), "a=1 b=1", "b=1", "a=1", ".a .b"),
    ("without removals a directory stays", Rules(removals=False), "d/ d/x=1", "", "d/ d/x=1", ".d/x"),
    ("both are kept, but not beside a problem", Rules(policy=Policy.KEEP_BOTH), "", "d/ d/p!", "d=1", "#d/p"),
    ("a pulled mirror leaves a problem", Rules(Mode.PULL, mirror=True), "", "d/ d/p!", "", "#d/p"),
]  # fmt: skip


def line(outcome: Outcome) -> str:
    """Return an outcome as one line. The digest of a conflict copy is written as C."""
    labels = [_label("R", change) for change in outcome.to_remote]
    labels += [_label("L", change) for change in outcome.to_local]
    labels += ["!" + conflict.path for conflict in outcome.conflicts]
    labels += ["." + path for path in outcome.other_side_only] + [
        "#" + path for path in outcome.problems
    ]
    return " ".join(sorted(labels))


def _label(side: str, change: Change) -> str:
    return side + SIGN[change.verb] + change.path


@pytest.mark.parametrize(("base", "local", "remote", "mode", "expected"), CASES)
def test_each_mode_makes_its_changes(
    base: str, local: str, remote: str, mode: Mode, expected: str, tree: Builder
) -> None:
    found = reconcile(tree(base), tree(local), tree(remote), Rules(mode))
    assert line(found) == " ".join(sorted(expected.split()))


@pytest.mark.parametrize(
    ("rules", "base", "local", "remote", "expected"),
    [pytest.param(*row[1:], id=row[0]) for row in RULED],
)
def test_policies_and_options_decide_conflicts(
    rules: Rules, base: str, local: str, remote: str, expected: str, tree: Builder
) -> None:
    ours = tree(local)
    found = line(reconcile(tree(base), ours, tree(remote), rules))
    for entry in ours.values():
        found = found.replace(entry.digest.hex()[:8], "C") if entry.digest else found
    assert found == " ".join(sorted(expected.split()))


def test_a_conflict_has_both_trees_below_the_path(tree: Builder) -> None:
    (conflict,) = reconcile({}, tree("a=1"), tree("a/ a/x=2 b=1"), Rules()).conflicts
    assert (set(conflict.local), set(conflict.remote)) == ({"a"}, {"a", "a/x"})


def test_a_conflict_copy_with_an_existing_name_gets_a_number(tree: Builder) -> None:
    rules = Rules(policy=Policy.KEEP_BOTH)
    first = reconcile({}, tree("a=1"), tree("a=2"), rules).to_remote[0].path
    again = reconcile({}, {**tree("a=1"), first: tree("a=9")["a"]}, tree("a=2"), rules)
    assert {c.path for c in again.to_remote} == {first, first + "-2"}


# Properties of all small trees: three names, two levels, files with three contents, links, directories.

CONTENTS = st.sampled_from(["1", "2", "3"])
LEAVES = st.one_of(
    CONTENTS.map(lambda c: Entry(Kind.FILE, c.encode() * 32, int(c))),
    st.just(Entry(Kind.SYMLINK, target="a")),
)


@st.composite
def trees(draw: st.DrawFn, problems: bool = False) -> Tree:
    """Generate trees in which the parent of every path is a directory."""
    found: dict[str, Entry] = {}
    leaves = LEAVES | st.just(Entry(Kind.PROBLEM, target="x")) if problems else LEAVES
    for path in ("a", "b", "a/a", "a/b", "a/a/a", "b/a"):
        if parent(path) and found.get(parent(path)) != DIRECTORY:
            continue
        choice = draw(st.sampled_from(["none", "leaf", "directory"]))
        if choice != "none":
            found[path] = draw(leaves) if choice == "leaf" else DIRECTORY
    return found


RULES = st.builds(
    Rules,
    st.sampled_from(Mode),
    st.sampled_from(Policy),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


def valid(tree: Tree) -> bool:
    return all(tree.get(up) == DIRECTORY for path in tree for up in ancestors(path))


def after(base: Tree, local: Tree, remote: Tree, rules: Rules) -> tuple[Tree, Tree, Tree]:
    """Return base, local and remote tree after all changes."""
    found = reconcile(base, local, remote, rules)
    paths = differing_paths(base, local, remote)
    ours, theirs = apply_changes(local, found.to_local), apply_changes(remote, found.to_remote)
    paths |= {c.path for c in (*found.to_local, *found.to_remote)}
    return rebase(base, ours, theirs, paths), ours, theirs


@given(trees(), trees(problems=True), trees(), RULES)
def test_both_sides_stay_valid_trees(base: Tree, local: Tree, remote: Tree, rules: Rules) -> None:
    _, ours, theirs = after(base, local, remote, rules)
    assert valid(ours)
    assert valid(theirs)


@given(trees(), trees(problems=True), trees(), RULES)
def test_each_mode_writes_only_its_side(
    base: Tree, local: Tree, remote: Tree, rules: Rules
) -> None:
    found = reconcile(base, local, remote, rules)
    assert not (rules.mode is Mode.PUSH and found.to_local)
    assert not (rules.mode is Mode.PULL and found.to_remote)


@given(trees(), trees(problems=True), trees(), RULES)
def test_changes_have_the_true_old_entries(
    base: Tree, local: Tree, remote: Tree, rules: Rules
) -> None:
    found = reconcile(base, local, remote, rules)
    assert all(change.old == local.get(change.path) for change in found.to_local)
    assert all(change.old == remote.get(change.path) for change in found.to_remote)


@given(trees(), trees(problems=True), trees(), RULES)
def test_a_second_sync_changes_nothing(base: Tree, local: Tree, remote: Tree, rules: Rules) -> None:
    base, local, remote = after(base, local, remote, rules)
    again = reconcile(base, local, remote, rules)
    if rules.policy is not Policy.KEEP_BOTH or rules.mode is Mode.SYNC:
        assert (again.to_local, again.to_remote) == ((), ())


@pytest.mark.parametrize(
    ("base", "local", "remote", "expected"),
    [
        pytest.param("", "a=1", "", "", id="new here"),
        pytest.param("", "a=1", "a=1", "a", id="new on both sides"),
        pytest.param("a=1", "a=22", "a=1", "", id="only we changed it, to another size"),
        pytest.param("a=1", "a=2", "a=1", "a", id="of one size"),
        pytest.param("a=1", "a=22", "a=3", "a", id="both changed it"),
        pytest.param("a=1", "a=22", "", "a", id="removed there"),
        pytest.param("", "d/ d/a=1", "d/", "", id="new in a directory of both"),
        pytest.param("", "d/ d/a=1", "d=2", "d/a", id="in a directory that is a file there"),
        pytest.param("d/", "d/ d/e/ d/e/a=1", "d>x", "d/e/a", id="deep in one that is a link"),
        pytest.param("d/", "d=1", "d/ d/a=1", "d", id="in the place of one that changed inside"),
        pytest.param("l>x", "l=22", "l>x", "", id="in the place of a link that did not"),
    ],
)
def test_files_to_hash_before_the_decision(
    tree: Builder, base: str, local: str, remote: str, expected: str
) -> None:
    unread = {p: replace(e, digest=UNHASHED) for p, e in tree(local).items()}
    paths = differing_paths(tree(base), unread, tree(remote))
    found = paths_to_hash(tree(base), unread, tree(remote), paths)
    assert sorted(found) == expected.split()


@given(trees(), trees(), trees(), RULES)
def test_unhashed_files_do_not_change_the_decision(
    base: Tree, local: Tree, remote: Tree, rules: Rules
) -> None:
    """An unhashed file does not become a conflict copy either: it can only be sent."""
    unread = {p: e if e == base.get(p) else replace(e, digest=UNHASHED) for p, e in local.items()}
    paths = differing_paths(base, unread, remote)
    read = dict.fromkeys(paths_to_hash(base, unread, remote, paths))
    hashed = {p: local[p] if p in read else e for p, e in unread.items()}
    found, complete = (reconcile(base, each, remote, rules) for each in (hashed, local))
    assert [(c.path, c.new) for c in found.to_local] == [(c.path, c.new) for c in complete.to_local]
    assert [c.path for c in found.to_remote] == [c.path for c in complete.to_remote]
    assert (found.other_side_only, found.problems) == (complete.other_side_only, complete.problems)
    assert [c.path for c in found.conflicts] == [c.path for c in complete.conflicts]


@given(trees(), trees(), trees())
def test_a_sync_without_conflicts_converges(base: Tree, local: Tree, remote: Tree) -> None:
    found = reconcile(base, local, remote, Rules())
    agreed, ours, theirs = after(base, local, remote, Rules())
    if not found.conflicts:
        assert ours == theirs == agreed


@given(trees(), trees(), trees(), st.sampled_from([Policy.LOCAL, Policy.REMOTE, Policy.KEEP_BOTH]))
def test_a_policy_leaves_no_conflict(base: Tree, local: Tree, remote: Tree, policy: Policy) -> None:
    _, ours, theirs = after(base, local, remote, Rules(policy=policy))
    assert ours == theirs


@given(trees(), trees(), trees())
def test_refusing_loses_no_content_that_one_side_alone_has_changed(
    base: Tree, local: Tree, remote: Tree
) -> None:
    """Content that only one side has written since the base is still on a side."""
    _, ours, theirs = after(base, local, remote, Rules())
    old = set(base.values())
    for tree in (local, remote):
        written = {e for p, e in tree.items() if base.get(p) != e and e not in old}
        assert written <= set(ours.values()) | set(theirs.values())


@given(trees(), trees(), trees())
def test_keep_both_loses_no_content(base: Tree, local: Tree, remote: Tree) -> None:
    _, ours, theirs = after(base, local, remote, Rules(policy=Policy.KEEP_BOTH))
    left = set(ours.values()) | set(theirs.values())
    for tree in (local, remote):
        assert {e for p, e in tree.items() if base.get(p) != e} <= left | set(base.values())


@given(trees(), trees(), trees())
def test_a_sync_is_symmetric(base: Tree, local: Tree, remote: Tree) -> None:
    one = reconcile(base, local, remote, Rules())
    other = reconcile(base, remote, local, Rules())
    assert (one.to_local, one.to_remote) == (other.to_remote, other.to_local)
    assert [c.path for c in one.conflicts] == [c.path for c in other.conflicts]


@given(trees(), trees(), trees(), st.sampled_from([Mode.PUSH, Mode.PULL]))
def test_push_and_pull_are_mirror_images(base: Tree, local: Tree, remote: Tree, mode: Mode) -> None:
    other = Mode.PULL if mode is Mode.PUSH else Mode.PUSH
    one = reconcile(base, local, remote, Rules(mode))
    back = reconcile(base, remote, local, Rules(other))
    assert (one.to_local, one.to_remote) == (back.to_remote, back.to_local)


@given(trees(), trees())
def test_without_a_base_nothing_is_removed(local: Tree, remote: Tree) -> None:
    found = reconcile({}, local, remote, Rules())
    assert all(c.new is not None for c in (*found.to_local, *found.to_remote))


@given(trees(), trees())
def test_applying_a_diff_gives_the_new_tree(old: Tree, new: Tree) -> None:
    assert apply_changes(old, diff(old, new)) == new
    assert apply_changes(new, diff(new, old)) == old


@given(trees(), trees())
def test_every_intermediate_tree_is_valid(old: Tree, new: Tree) -> None:
    """The order is removals from the leaves up, then creations from the root."""
    tree = dict(old)
    for change in order_changes(diff(old, new)):
        if change.path in tree and (
            change.new is None or DIRECTORY in (tree[change.path], change.new)
        ):
            del tree[change.path]
        elif change.new is not None:
            tree[change.path] = change.new
        assert valid(tree)
    if not any(c.old and c.new and c.old.kind != c.new.kind for c in diff(old, new)):
        assert tree == new
