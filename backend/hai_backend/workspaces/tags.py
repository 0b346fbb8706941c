"""Tags: names that users give to revisions. A tagged revision is retained."""

from __future__ import annotations

from hai_backend.domain.errors import Conflict, Exhausted, NotFound
from hai_backend.domain.formatting import format_list
from hai_backend.domain.workspace import Revision
from hai_backend.workspaces.files import WorkspaceFiles
from hai_backend.workspaces.index import Index

MAX_TAGS = 1000  # per workspace; clients fetch all of them at once


def tag(files: WorkspaceFiles, name: str, number: int, *, force: bool) -> Revision:
    """Tags a revision. Raises NotFound, Conflict when another revision has the tag, or Exhausted."""
    files.revision(number)
    index, number_found = files.index, revision_number(files.index, name)
    if number_found not in (None, number) and not force:
        raise Conflict(
            f"revision {number_found} is tagged {name!r} already; choose another name, or move it with --force",
            reason="NAME_TAKEN",
        )
    if number_found is None and index.rows("SELECT count(*) FROM tags")[0][0] >= MAX_TAGS:
        raise Exhausted(f"the workspace has {MAX_TAGS} tags already; remove some")
    with index.transaction(durable=True) as db:
        db.execute("INSERT OR REPLACE INTO tags VALUES (?, ?)", (name, number))
    return files.revision(number)


def get_tagged(files: WorkspaceFiles, name: str) -> Revision:
    """Returns the revision with a tag. Raises NotFound."""
    number = revision_number(files.index, name)
    if number is None:
        raise NotFound(
            f"no revision of workspace {files.path.name} is tagged {name!r}; {_existing_tags(files)}"
        )
    return files.revision(number)


def _existing_tags(files: WorkspaceFiles) -> str:
    rows = files.index.rows("SELECT name FROM tags ORDER BY revision DESC, name")
    names = f"existing tags: {format_list([row[0] for row in rows])}; " if rows else ""
    return f"{names}`hai workspace snapshots --tagged` lists all"


def untag(files: WorkspaceFiles, name: str) -> None:
    """Removes a tag. Raises NotFound."""
    get_tagged(files, name)
    with files.index.transaction(durable=True) as db:
        db.execute("DELETE FROM tags WHERE name = ?", (name,))


def revision_number(index: Index, name: str) -> int | None:
    """Returns the number of the revision with a tag; None if there is none."""
    number_found = index.rows("SELECT revision FROM tags WHERE name = ?", (name,))
    return int(number_found[0][0]) if number_found else None
