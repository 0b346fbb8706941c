"""What is old is forgotten, by the time of revisions, which never goes back."""

from __future__ import annotations

from pathlib import Path

from hai_backend.workspaces import collecting, looking
from hai_backend.workspaces.files import Files, make
from hai_backend.workspaces.staging import Author


def test_a_clock_that_stood_in_the_past_costs_no_history(tmp_path: Path) -> None:
    make(tmp_path / "u" / "w", 0)
    files = Files(tmp_path / "u" / "w", 0)
    for number, now in enumerate((1000.0, 2000.0, 5.0, 2100.0)):
        (files.tree / f"f{number}").write_text("x")
        looking.look(files, Author("tasks", now))
    collecting.collect(files, pinned=(), running=(), before=1500.0)
    kept = [(each.number, each.created_at) for each in files.index.revisions(limit=9)]
    assert kept == [(4, 2100.0), (3, 2000.0), (2, 2000.0), (1, 1000.0)]
    collecting.collect(files, pinned=(), running=(), before=2050.0)
    assert [each.number for each in files.index.revisions(limit=9)] == [4, 3]
    files.close()


def test_a_clock_years_ahead_costs_no_more_than_it_has_to(tmp_path: Path) -> None:
    make(tmp_path / "u" / "w", 0)
    files = Files(tmp_path / "u" / "w", 0)
    for number in range(5):
        (files.tree / f"f{number}").write_text("x")
        looking.look(files, Author("tasks", 1000.0 + number))
    collecting.collect(files, pinned=(), running=(), before=1e12, least=3)
    assert [each.number for each in files.index.revisions(limit=9)] == [5, 4, 3]
    collecting.collect(files, pinned=(), running=(), before=1e12, least=9)
    assert [each.number for each in files.index.revisions(limit=9)] == [5, 4, 3]
    collecting.collect(files, pinned=(), running=(), before=1e12)
    assert [each.number for each in files.index.revisions(limit=9)] == [5]
    files.close()
