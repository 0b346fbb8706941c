"""Names of revisions, given by users. A revision that has one is kept until it has none."""

from __future__ import annotations

from hai_backend.domain.errors import Conflict, Exhausted, NotFound
from hai_backend.domain.formatting import format_list
from hai_backend.domain.workspace import Revision
from hai_backend.workspaces.files import Files
from hai_backend.workspaces.index import Index

MOST = 1000  # of one workspace; clients ask for all of them at once


def tag(files: Files, name: str, number: int, *, force: bool) -> Revision:
    """Give a revision a name. Raises NotFound, Conflict when another has it, or Exhausted."""
    files.revision(number)
    index, found = files.index, number_of(files.index, name)
    if found not in (None, number) and not force:
        raise Conflict(
            f"revision {found} is tagged {name!r} already; choose another name, or move it with --force",
            reason="NAME_TAKEN",
        )
    if found is None and index.rows("SELECT count(*) FROM tags")[0][0] >= MOST:
        raise Exhausted(f"the workspace has {MOST} tags already; remove some")
    with index.transaction(durable=True) as db:
        db.execute("INSERT OR REPLACE INTO tags VALUES (?, ?)", (name, number))
    return files.revision(number)


def tagged(files: Files, name: str) -> Revision:
    """The revision that is called so. Raises NotFound."""
    number = number_of(files.index, name)
    if number is None:
        raise NotFound(
            f"no revision of workspace {files.path.name} is tagged {name!r}; {_known(files)}"
        )
    return files.revision(number)


def _known(files: Files) -> str:
    rows = files.index.rows("SELECT name FROM tags ORDER BY revision DESC, name")
    names = f"there are {format_list([row[0] for row in rows])}; " if rows else ""
    return f"{names}`hai workspace snapshots --tagged` lists all"


def untag(files: Files, name: str) -> None:
    """Take it away. Raises NotFound."""
    tagged(files, name)
    with files.index.transaction(durable=True) as db:
        db.execute("DELETE FROM tags WHERE name = ?", (name,))


def number_of(index: Index, name: str) -> int | None:
    """The revision that is called so."""
    found = index.rows("SELECT revision FROM tags WHERE name = ?", (name,))
    return int(found[0][0]) if found else None
