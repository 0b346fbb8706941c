"""What is old is forgotten, by the time of revisions, which never goes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hai_backend.workspaces import garbage, tags
from hai_backend.workspaces.files import WorkspaceFiles, make_directories
from hai_backend.workspaces.push.staging import PROGRAMS, Author
from hai_backend.workspaces.storage import tree_scan


def test_a_clock_that_stood_in_the_past_costs_no_history(tmp_path: Path) -> None:
    make_directories(tmp_path / "u" / "w", 0)
    files = WorkspaceFiles(tmp_path / "u" / "w", 0)
    for number, now in enumerate((1000.0, 2000.0, 5.0, 2100.0)):
        (files.tree / f"f{number}").write_text("x")
        tree_scan.scan(files, Author("tasks", now))
    garbage.collect(files, pinned=(), running=(), before=1500.0)
    retained = [(each.number, each.created_at) for each in files.index.revisions(limit=9)]
    assert retained == [(4, 2100.0), (3, 2000.0), (2, 2000.0), (1, 1000.0)]
    garbage.collect(files, pinned=(), running=(), before=2050.0)
    assert [each.number for each in files.index.revisions(limit=9)] == [4, 3]
    files.close()


def test_a_clock_years_ahead_costs_no_more_than_it_has_to(tmp_path: Path) -> None:
    make_directories(tmp_path / "u" / "w", 0)
    files = WorkspaceFiles(tmp_path / "u" / "w", 0)
    for number in range(5):
        (files.tree / f"f{number}").write_text("x")
        tree_scan.scan(files, Author("tasks", 1000.0 + number))
    garbage.collect(files, pinned=(), running=(), before=1e12, min_revisions=3)
    assert [each.number for each in files.index.revisions(limit=9)] == [5, 4, 3]
    garbage.collect(files, pinned=(), running=(), before=1e12, min_revisions=9)
    assert [each.number for each in files.index.revisions(limit=9)] == [5, 4, 3]
    garbage.collect(files, pinned=(), running=(), before=1e12)
    assert [each.number for each in files.index.revisions(limit=9)] == [5]
    files.close()


def test_of_what_programs_write_all_the_time_each_hour_keeps_its_last(tmp_path: Path) -> None:
    """And what people pushed, tagged or run on. Every revision that is kept is as it was."""
    make_directories(tmp_path / "u" / "w", 0)
    files = WorkspaceFiles(tmp_path / "u" / "w", 0)
    for number in range(1, 61):  # of ten minutes each, from 0:10 to 10:00
        (files.tree / "log").write_text("x" * number)
        (files.tree / f"only-in-{number}").write_text(str(number))
        (files.tree / f"only-in-{number - 1}").unlink(missing_ok=True)
        tree_scan.scan(files, Author("a laptop" if number == 20 else PROGRAMS, number * 600.0))
    tags.tag(files, "baseline", 33, force=False)
    garbage.collect(
        files, pinned=(40,), running=(), before=0.0, min_revisions=5, thin_before=8 * 3600.0
    )
    retained = [each.number for each in files.index.revisions(limit=99)]
    assert retained == [*range(60, 46, -1), 41, 40, 35, 33, 29, 23, 20, 17, 11, 5]
    for number in retained:
        entries = [entry for page in files.index.tree(number) for entry in page]
        assert [(entry.path, entry.size) for entry in entries] == [
            ("log", number),
            (f"only-in-{number}", len(str(number))),
        ]
    rows = files.index.rows("SELECT COUNT(*) FROM entries")[0][0]
    assert rows <= 2 * len(retained)
    files.close()


async def test_deleted_revisions_leave_a_row_of_the_audit(here: Any) -> None:
    pusher, workspaces = await here.pusher(), here.server.app.leader_term.workspaces
    for content in (b"one", b"two", b"three"):
        await pusher.push({"file": content})
    for _ in range(2):  # the second one has nothing to delete
        async with workspaces.registry.open(("admin", "w")) as room:
            await workspaces.collect(room, full=True)
    rows = [row async for row in here.client.audit.rows(method="CollectRevisions")]
    assert [(row.actor, row.resource, row.what, row.code) for row in rows] == [
        ("system", "admin/w", "deleted revisions=2 contents=2", "OK")
    ]
