"""Old revisions are deleted by their times, which never decrease."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hai_backend.workspaces import garbage_collection as garbage
from hai_backend.workspaces import tags
from hai_backend.workspaces.files import WorkspaceFiles, make_directories
from hai_backend.workspaces.push.staging import PROGRAMS, Author
from hai_backend.workspaces.storage import tree_scan


def test_a_clock_that_was_late_deletes_no_recent_revision(tmp_path: Path) -> None:
    make_directories(tmp_path / "u" / "w", 0)
    files = WorkspaceFiles(tmp_path / "u" / "w", 0)
    for number, now in enumerate((1000.0, 2000.0, 5.0, 2100.0)):
        (files.tree / f"f{number}").write_text("x")
        tree_scan.scan_tree(files, Author("tasks", now))
    garbage.collect(files, pinned=(), running=(), before=1500.0)
    retained = [(each.number, each.created_at) for each in files.index.list_revisions(limit=9)]
    assert retained == [(4, 2100.0), (3, 2000.0), (2, 2000.0), (1, 1000.0)]
    garbage.collect(files, pinned=(), running=(), before=2050.0)
    assert [each.number for each in files.index.list_revisions(limit=9)] == [4, 3]
    files.close()


def test_a_clock_years_ahead_deletes_only_old_revisions(tmp_path: Path) -> None:
    make_directories(tmp_path / "u" / "w", 0)
    files = WorkspaceFiles(tmp_path / "u" / "w", 0)
    for number in range(5):
        (files.tree / f"f{number}").write_text("x")
        tree_scan.scan_tree(files, Author("tasks", 1000.0 + number))
    garbage.collect(files, pinned=(), running=(), before=1e12, min_revisions=3)
    assert [each.number for each in files.index.list_revisions(limit=9)] == [5, 4, 3]
    garbage.collect(files, pinned=(), running=(), before=1e12, min_revisions=9)
    assert [each.number for each in files.index.list_revisions(limit=9)] == [5, 4, 3]
    garbage.collect(files, pinned=(), running=(), before=1e12)
    assert [each.number for each in files.index.list_revisions(limit=9)] == [5]
    files.close()


def test_of_revisions_by_programs_the_last_of_each_hour_is_retained(tmp_path: Path) -> None:
    """Revisions that people pushed, tagged or pinned are retained as well. No retained revision changes."""
    make_directories(tmp_path / "u" / "w", 0)
    files = WorkspaceFiles(tmp_path / "u" / "w", 0)
    for number in range(1, 61):  # one revision in ten minutes, from 0:10 to 10:00
        (files.tree / "log").write_text("x" * number)
        (files.tree / f"only-in-{number}").write_text(str(number))
        (files.tree / f"only-in-{number - 1}").unlink(missing_ok=True)
        tree_scan.scan_tree(files, Author("a laptop" if number == 20 else PROGRAMS, number * 600.0))
    tags.tag(files, "baseline", 33, force=False)
    garbage.collect(
        files, pinned=(40,), running=(), before=0.0, min_revisions=5, thin_before=8 * 3600.0
    )
    retained = [each.number for each in files.index.list_revisions(limit=99)]
    assert retained == [*range(60, 46, -1), 41, 40, 35, 33, 29, 23, 20, 17, 11, 5]
    for number in retained:
        entries = [entry for page in files.index.iterate_tree(number) for entry in page]
        assert [(entry.path, entry.size) for entry in entries] == [
            ("log", number),
            (f"only-in-{number}", len(str(number))),
        ]
    rows = files.index.fetch_rows("SELECT COUNT(*) FROM entries")[0][0]
    assert rows <= 2 * len(retained)
    files.close()


async def test_deleting_revisions_is_audited(service: Any) -> None:
    pusher, workspaces = await service.pusher(), service.server.app.leader.workspaces
    for content in (b"one", b"two", b"three"):
        await pusher.push({"file": content})
    for _ in range(2):  # the second one has nothing to delete
        async with workspaces.registry.open(("admin", "w")) as workspace:
            await workspaces.collect(workspace, full=True)
    rows = [row async for row in service.client.audit.rows(method="CollectRevisions")]
    assert [(row.actor, row.resource, row.what, row.code) for row in rows] == [
        ("system", "admin/w", "deleted revisions=2 contents=2", "OK")
    ]
