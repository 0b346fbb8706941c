"""What `index` holds, as far as a push with little to do reads and writes it: the same rows, by the same rules."""

from __future__ import annotations

import os
import sqlite3
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hai_sync.quick.pushing import Edited


class Memory:
    """Of one workspace. Raises sqlite3.Error, or ValueError where the last sync was not one to build upon."""

    def __init__(self, state: str) -> None:
        uri = f"file:{state}/index.sqlite?mode=rw"
        self._db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=30)
        self.facts: Mapping[str, str] = dict(self._db.execute("SELECT name, value FROM facts"))

    def close(self) -> None:
        """Done with it."""
        self._db.close()

    def seen(self) -> dict[str, bytes]:
        """Signatures by path."""
        return dict(self._db.execute("SELECT path, signature FROM seen"))

    def left_out(self) -> set[str]:
        """What the last whole scan left out."""
        return {row[0] for row in self._db.execute("SELECT path FROM left_out")}

    def agreed(self) -> bool:
        """Whether the other side has nothing but what both agreed on."""
        return self._db.execute("SELECT 1 FROM theirs LIMIT 1").fetchone() is None

    def changed(self, files: Sequence[Edited]) -> list[Edited]:
        """Those that are not what both sides agreed on."""
        query = "SELECT digest, executable FROM base WHERE path = ? AND kind = 1"
        rows = [(file, self._db.execute(query, (file.path,)).fetchone()) for file in files]
        return [file for file, row in rows if row != (file.digest, int(file.executable))]

    def remember(
        self, files: Sequence[Edited], pushed: Sequence[Edited], revision: int, looked_ns: int
    ) -> None:
        """These were read, those pushed. Others who have it open see by `generation` that it is another one."""
        seen = ((file.seen, file.digest, file.path) for file in files)
        base = (
            (file.digest, file.size, int(file.executable), max(0, file.mtime_ns), file.path)
            for file in pushed
        )
        facts = {
            "revision": str(revision),
            "looked_ns": str(looked_ns),
            "synced": str(time.time()),
            "generation": os.urandom(16).hex(),
        }
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("UPDATE seen SET signature = ?, digest = ? WHERE path = ?", seen)
        update = "UPDATE base SET digest = ?, size = ?, executable = ?, mtime_ns = ? WHERE path = ?"
        self._db.executemany(update, base)
        self._db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())
        self._db.execute("COMMIT")
