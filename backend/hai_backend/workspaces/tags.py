"""Manages tags, which are names of revisions. Tagged revisions are retained."""

from __future__ import annotations

from hai_backend.domain.errors import Conflict, Exhausted, NotFound
from hai_backend.domain.formatting import format_list
from hai_backend.domain.workspace import Revision
from hai_backend.workspaces.files import WorkspaceFiles
from hai_backend.workspaces.index import Index

MAX_TAGS = 1000  # of one workspace, because clients fetch all tags at once


def tag(files: WorkspaceFiles, name: str, number: int, *, force: bool) -> Revision:
    """Tag a revision. Raise NotFound, Conflict when another revision has the tag, or Exhausted."""
    files.get_revision(number)
    index, existing_number = files.index, find_tagged_number(files.index, name)
    if existing_number not in (None, number) and not force:
        raise Conflict(
            f"revision {existing_number} is tagged {name!r} already; choose another name, or move it with --force",
            reason="NAME_TAKEN",
        )
    if existing_number is None and index.fetch_rows("SELECT count(*) FROM tags")[0][0] >= MAX_TAGS:
        raise Exhausted(f"the workspace has {MAX_TAGS} tags already; remove some")
    with index.transaction(durable=True) as db:
        db.execute("INSERT OR REPLACE INTO tags VALUES (?, ?)", (name, number))
    return files.get_revision(number)


def get_tagged(files: WorkspaceFiles, name: str) -> Revision:
    """Return the revision with a tag. Raise NotFound."""
    number = find_tagged_number(files.index, name)
    if number is None:
        raise NotFound(
            f"no revision of workspace {files.path.name} is tagged {name!r}; {_existing_tags(files)}"
        )
    return files.get_revision(number)


def _existing_tags(files: WorkspaceFiles) -> str:
    rows = files.index.fetch_rows("SELECT name FROM tags ORDER BY revision DESC, name")
    names = f"existing tags: {format_list([row[0] for row in rows])}; " if rows else ""
    return f"{names}`hai workspace snapshots --tagged` lists all"


def untag(files: WorkspaceFiles, name: str) -> None:
    """Remove a tag. Raise NotFound."""
    get_tagged(files, name)
    with files.index.transaction(durable=True) as db:
        db.execute("DELETE FROM tags WHERE name = ?", (name,))


def find_tagged_number(index: Index, name: str) -> int | None:
    """Return the number of the revision with a tag; None if there is none."""
    existing_number = index.fetch_rows("SELECT revision FROM tags WHERE name = ?", (name,))
    return int(existing_number[0][0]) if existing_number else None
