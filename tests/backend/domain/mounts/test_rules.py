"""Rows become mounts: order of rows, removals, conflicts, conditions and templates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.domain.accounts.user import Role, User
from hai_backend.domain.errors import Invalid
from hai_backend.domain.mounts.mount import HostPathType, Mount, MountAction, MountKind, MountRow
from hai_backend.domain.mounts.mount_rules import resolve
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import OptionsSpec, ProgramSpec, ResourceSpec, TaskSpec
from hai_backend.domain.task import Task, TaskState

ADA = User("ada", groups=("vision", "speech"), uid=2001)
SPEC = TaskSpec(
    "resnet",
    ProgramSpec("train.py"),
    resource=ResourceSpec(group="a100", zone="east"),
    options=OptionsSpec(mount_code=2),
)
TASK = Task(12, "ada", SPEC, TaskState.RUNNING, Priority.NORMAL, 0.0, tags=("big",))


def add(path: str, source: str = "/x", *owners: str, **more: Any) -> MountRow:
    return MountRow(owners or ("public",), path, source, **more)


def remove(path: str, source: str = "", *owners: str, **more: Any) -> MountRow:
    return MountRow(owners or ("public",), path, source, action=MountAction.REMOVE, **more)


def seen(*rows: MountRow, user: User = ADA, task: Task | None = TASK) -> dict[str, str]:
    mounts, _ = resolve(rows, user, task)
    return {mount.mount_path: mount.source for mount in mounts}


TRUE, FALSE = ("user.name == 'ada'",), ("user.name == 'bob'",)

CASES = [
    ("nothing", [], {}),
    ("for everybody", [add("/a")], {"/a": "/x"}),
    ("for a group", [add("/a", "/x", "speech")], {"/a": "/x"}),
    ("for a role", [add("/a", "/x", "USER")], {"/a": "/x"}),
    ("for the user", [add("/a", "/x", "bob", "ada")], {"/a": "/x"}),
    ("for others", [add("/a", "/x", "bob", "audio", "ADMIN")], {}),
    ("user over group", [add("/a", "/u", "ada"), add("/a", "/g")], {"/a": "/u"}),
    ("condition over none", [add("/a", "/c", conditions=TRUE), add("/a", "/g")], {"/a": "/c"}),
    (
        "user without condition over group with one",
        [add("/a", "/u", "ada"), add("/a", "/c", conditions=TRUE)],
        {"/a": "/u"},
    ),
    (
        "user with condition over all",
        [
            add("/a", "/uc", "ada", conditions=TRUE),
            add("/a", "/u", "ada"),
            add("/a", "/gc", conditions=TRUE),
            add("/a", "/g"),
        ],
        {"/a": "/uc"},
    ),
    ("condition that does not hold", [add("/a", "/c", conditions=FALSE)], {}),
    ("all conditions must hold", [add("/a", "/c", conditions=TRUE + FALSE)], {}),
    ("two of a rank drop both", [add("/a", "/x"), add("/a", "/y", "vision"), add("/b")], {"/b": "/x"}),
    ("even when they are equal", [add("/a"), add("/a", "/x", "vision")], {}),
    ("even when they are three", [add("/a"), add("/a"), add("/a")], {}),
    (
        "what an earlier rank added stays",
        [add("/a", "/g"), add("/a", "/x", "ada"), add("/a", "/y", "ada")],
        {"/a": "/g"},
    ),
    ("removed by path", [add("/a"), add("/b"), remove("/a", "", "ada")], {"/b": "/x"}),
    ("removed by source", [add("/a", "/y"), add("/b"), remove("*", "/y", "ada")], {"/b": "/x"}),
    ("both must match", [add("/a"), remove("/a", "/y", "ada")], {"/a": "/x"}),
    (
        "star at the end of the path",
        [add("/a/b"), add("/a/c"), add("/ab"), remove("/a/*", "", "ada")],
        {"/ab": "/x"},
    ),
    (
        "star at the end of the source",
        [add("/a", "/x/1"), add("/b", "/x2"), remove("*", "/x/*", "ada")],
        {"/b": "/x2"},
    ),
    ("a star is the rest, also none", [add("/a"), remove("/a*", "", "ada")], {}),
    ("a path is whole", [add("/a/b"), remove("/a", "", "ada")], {"/a/b": "/x"}),
    ("a slash at the end is nothing", [add("/a/"), remove("/a/", "", "ada")], {}),
    ("removals come first in a rank", [remove("/a"), add("/a")], {"/a": "/x"}),
    ("and whatever their order", [add("/a"), remove("/a")], {"/a": "/x"}),
    ("removed later, added again later still", [add("/a"), remove("/a", "", "vision", conditions=TRUE),
      add("/a", "/y", "ada")], {"/a": "/y"}),
    ("a removal of a lower rank is too early", [remove("/a"), add("/a", "/u", "ada")], {"/a": "/u"}),
    ("removal with a condition", [add("/a"), remove("/a", conditions=FALSE)], {"/a": "/x"}),
    ("removal with a template", [add("/a/12"), remove("/a/{task.id}", "", "ada")], {}),
    (
        "templates",
        [
            add("/u/{user.name}-{user.uid}", "/g/{user.group}"),
            add("/t/{task.id}/{task.name}", "/k/{task.type}/{task.group}/{task.zone}"),
        ],
        {"/u/ada-2001": "/g/vision", "/t/12/resnet": "/k/training/a100/east"},
    ),
    ("mount set of the task", [add("/a", mount_code=2), add("/b", mount_code=6)], {"/a": "/x", "/b": "/x"}),
    ("mount set of others", [add("/a", mount_code=1), add("/b", mount_code=4)], {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "expected"), [pytest.param(rows, mounts, id=ident) for ident, rows, mounts in CASES]
)
def test_rows_become_mounts(rows: list[MountRow], expected: dict[str, str]) -> None:
    assert seen(*rows) == expected


NO_TASK = [
    ("nothing of a task", add("/a"), True),
    ("task in the path", add("/a/{task.id}"), False),
    ("task in the source", add("/a", "/x/{task.name}"), False),
    (
        "task in an attribute",
        add("/a", "d", kind=MountKind.CSI, attributes={"v": "{task.id}"}),
        False,
    ),
    ("task in a condition", add("/a", conditions=("task.name == 'x'",)), False),
    ("also where it would not matter", add("/a", conditions=("task.id == 1 or user.uid == 2001",)), False),
    ("asked whether there is one", add("/a", conditions=("task is None",)), True),
    ("asked whether there is none", add("/a", conditions=("task is not None",)), False),
    ("another mount set", add("/a", mount_code=4), True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "shown"), [pytest.param(row, shown, id=ident) for ident, row, shown in NO_TASK]
)
def test_without_a_task_rows_that_ask_for_one_are_left_out(row: MountRow, shown: bool) -> None:
    assert bool(seen(row, task=None)) is shown


def test_conflicts_are_reported_without_sources() -> None:
    rows = (add("/a", "/secret", id=3), add("/a", "/y", id=5))
    _, notes = resolve(rows, ADA, TASK)
    assert notes == ("rows 3, 5 all mount /a: none of them is used; remove all but one",)


def test_a_user_without_groups_has_no_mount_named_by_one() -> None:
    assert seen(add("/g/{user.group}"), user=replace(ADA, groups=())) == {}


def test_a_row_becomes_a_mount_unchanged() -> None:
    row = add(
        "/a", "/x", host_type=HostPathType.DIRECTORY, read_only=False, kind=MountKind.HOST_PATH
    )
    wanted = Mount("/a", "/x", host_type=HostPathType.DIRECTORY, read_only=False)
    assert resolve((row,), ADA, TASK) == ((wanted,), ())


def test_config_maps_are_never_written() -> None:
    row = add("/a", "x", kind=MountKind.CONFIG_MAP, read_only=False)
    assert resolve((row,), ADA, TASK)[0][0].read_only


def test_outer_directories_come_first() -> None:
    assert list(seen(add("/a/b/c"), add("/a"), add("/a/b"))) == ["/a", "/a/b", "/a/b/c"]


def test_shared_memory_may_be_sized() -> None:
    row = add("/dev/shm", "8Gi", kind=MountKind.TMPFS, read_only=False)
    assert seen(row) == {"/dev/shm": "8Gi"}


BROKEN = [
    ("written past the check", add("/a", conditions=("eval('1')",)), "column"),
    ("a template of nothing", add("/a/{user.password}"), "there is no 'user.password'"),
    ("names what is ours", add("/{user.name}"), "the platform's"),
]


@pytest.mark.parametrize(
    ("row", "said"), [pytest.param(row, said, id=ident) for ident, row, said in BROKEN]
)
def test_an_unmet_dependency_cancels_the_task(row: MountRow, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        resolve((replace(row, id=7),), User("hai"), TASK)


paths = st.sampled_from(("/a", "/b", "/a/c", "/d/{user.name}"))
rows = st.builds(
    MountRow,
    owners=st.sampled_from((("public",), ("vision",), ("ada",), ("bob",))),
    mount_path=paths,
    source=st.sampled_from(("/x", "/y")),
    action=st.sampled_from(MountAction),
    conditions=st.sampled_from(((), TRUE, FALSE)),
)


@given(st.lists(rows, max_size=8), st.randoms())
def test_the_order_of_rows_changes_nothing(found: list[MountRow], random: Any) -> None:
    mixed = list(found)
    random.shuffle(mixed)
    assert resolve(found, ADA, TASK)[0] == resolve(mixed, ADA, TASK)[0]


@given(st.lists(rows, max_size=8))
def test_rows_of_other_users_have_no_effect(found: list[MountRow]) -> None:
    ours = [row for row in found if row.owners != ("bob",)]
    assert resolve(found, ADA, TASK) == resolve(ours, ADA, TASK)


def test_roles_are_owners() -> None:
    assert seen(add("/a", "/x", "ADMIN"), user=replace(ADA, role=Role.ADMIN)) == {"/a": "/x"}
