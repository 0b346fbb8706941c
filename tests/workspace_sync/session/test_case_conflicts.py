"""Tests of names that differ only in case. Both are synced if both sides distinguish case, else the new one is refused.

The file systems of these tests distinguish case. A link makes the probe of one side find its file under the other name,
as it would on a file system that ignores case.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from hai_sync.core.reconcile_options import Mode
from hai_sync.session.options import Report


def ignore_case_here(laptop) -> str:
    (laptop.root / ".hfai/WORKSPACE.YML").symlink_to("workspace.yml")
    return "this directory"


def ignore_case_on_cluster(laptop) -> str:
    (laptop.cluster.parent / "FILES").symlink_to("files")
    return "the cluster"


def collision(side: str, other: str) -> str:
    return f"{side} ignores case and takes it for the same as {other!r}; rename one"


@pytest.mark.parametrize("mode", [Mode.PUSH, Mode.SYNC])
async def test_both_names_are_synced_on_case_sensitive_sides(laptop, mode: Mode) -> None:
    for name in ("README", "readme", "Makefile", "makefile", "data/a", "Data/b"):
        laptop.write(name, name)
    assert (await laptop.sync(mode)).in_sync
    assert laptop.on_cluster() == laptop.read()
    laptop.write("readme", "edited")
    assert (await laptop.sync(mode)).in_sync
    assert laptop.on_cluster() == laptop.read()


async def test_the_new_name_is_refused_and_the_synced_one_kept(laptop) -> None:
    side = ignore_case_on_cluster(laptop)
    laptop.write("foo.txt", "1")
    laptop.write("data/a", "1")
    await laptop.push()
    laptop.write("FOO.txt", "2")
    laptop.write("Data/b", "2")
    laptop.write("foo.txt", "edited")
    laptop.write("data/a", "edited")
    for _ in range(2):
        report = await laptop.push()
        assert report.problems == {
            "FOO.txt": collision(side, "foo.txt"),
            "Data": collision(side, "data"),
        }
        assert not report.in_sync
        assert laptop.on_cluster() == {"foo.txt": b"edited", "data/a": b"edited"}


async def test_every_mode_reports_the_collision(laptop) -> None:
    ignore_case_on_cluster(laptop)
    laptop.write("foo.txt", "1")
    await laptop.push()
    laptop.write("FOO.txt", "2")
    reports: list[Report] = [
        await laptop.sync(mode, dry_run=dry_run)
        for mode in Mode
        if mode is not Mode.PULL
        for dry_run in (True, False)
    ]
    assert [list(report.problems) for report in reports] == [["FOO.txt"]] * len(reports)
    assert not any(report.outcome.to_remote for report in reports)


async def test_collisions_of_alternating_pushes_are_refused(laptops) -> None:
    one, two = await laptops("one"), await laptops("two")
    side = ignore_case_on_cluster(one)
    one.write("new.txt", "1")
    two.write("NEW.txt", "2")
    assert (await one.push()).in_sync
    assert (await two.push()).problems == {"NEW.txt": collision(side, "new.txt")}
    one.write("new.txt", "edited")
    assert (await one.push()).in_sync
    assert one.on_cluster() == {"new.txt": b"edited"}


async def test_a_case_insensitive_directory_gets_one_name(laptops) -> None:
    one, two = await laptops("one"), await laptops("two")
    side = ignore_case_here(two)
    one.write("a", "1")
    one.write("data/x", "1")
    await one.push()
    await two.pull()
    one.write("A", "2")
    one.write("Data/y", "2")
    await one.push()
    for _ in range(2):
        assert (await two.sync()).problems == {
            "A": collision(side, "a"),
            "Data": collision(side, "data"),
        }
        assert two.read() == {"a": b"1", "data/x": b"1"}
    assert len(one.on_cluster()) == 4


@pytest.mark.parametrize("ignore_case", [ignore_case_here, ignore_case_on_cluster])
async def test_a_rename_that_changes_only_case_is_synced(
    laptop, ignore_case: Callable[..., str]
) -> None:
    ignore_case(laptop)
    laptop.write("foo.txt", "1")
    laptop.write("data/a", "1")
    await laptop.push()
    os.rename(laptop.root / "foo.txt", laptop.root / "Foo.txt")
    os.rename(laptop.root / "data", laptop.root / "Data")
    assert (await laptop.push()).in_sync
    assert laptop.on_cluster() == {"Foo.txt": b"1", "Data/a": b"1"}


async def test_both_are_synced_after_one_is_renamed(laptop) -> None:
    ignore_case_on_cluster(laptop)
    laptop.write("a", "1")
    laptop.write("A", "2")
    assert list((await laptop.push()).problems) == ["a"]
    os.rename(laptop.root / "a", laptop.root / "b")
    assert (await laptop.push()).in_sync
    assert laptop.on_cluster() == {"A": b"2", "b": b"1"}
