"""`push` with nothing to push: the answer, or None where anything is in doubt; then the whole program looks.

It needs that the last sync was clean, that every file is as it was, and that the server still has the revision that
this sync ended with. The server is asked first and answers while we walk.
"""

from __future__ import annotations

import fcntl
import gc
import os
import sqlite3
import sys

from hai_sync.quick.asking import asked, told
from hai_sync.quick.same import OWN, unchanged
from hai_sync.signatures import DIRECTORY_SIGNATURE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_FILTER = "((), (), True)"
"""The fingerprint of a filter that leaves out nothing but what is left out always."""


def _config(path: str) -> dict[str, str]:
    """Of the file only two plain lines are of interest."""
    with open(path, encoding="utf-8") as file:
        lines = (line.partition(":") for line in file)
        return {key: value.strip().strip("'\"") for key, _, value in lines}


def _data() -> str:
    """The user's directory for data, where that is a plain question."""
    chosen = os.environ.get("XDG_DATA_HOME", "").strip()
    if not sys.platform.startswith("linux"):
        raise OSError("another system's rules")
    return chosen or os.path.expanduser("~/.local/share")


def _is_clean(facts: Mapping[str, str]) -> bool:
    return facts["clean"] == "yes" and facts["filter"] == DEFAULT_FILTER


def nothing_to_push(root: str) -> Mapping[str, int] | None:
    """Facts of a push that found nothing to do."""
    gc.disable()  # everything that is made here is done with at the end of the program, or soon
    try:
        return _nothing_to_push(root)
    except (OSError, sqlite3.Error, ValueError, KeyError):
        return None
    finally:
        gc.enable()


def _nothing_to_push(root: str) -> Mapping[str, int] | None:
    config = _config(f"{root}/{OWN}/workspace.yml")
    state = f"{_data()}/hai/workspaces/{config['id']}"
    if os.path.exists(f"{root}/{OWN}/tmp"):
        return None  # a sync was interrupted
    with open(f"{state}/lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        index = sqlite3.connect(
            f"file:{state}/index.sqlite?mode=rw", uri=True, isolation_level=None
        )
        try:
            return _compared(root, config["name"], index)
        finally:
            index.close()


def _compared(root: str, name: str, index: sqlite3.Connection) -> Mapping[str, int] | None:
    facts = dict(index.execute("SELECT name, value FROM facts"))
    call = asked(name, facts) if _is_clean(facts) else None
    if call is None:
        return None
    try:
        seen = dict(index.execute("SELECT path, signature FROM seen"))
        left_out = {row[0] for row in index.execute("SELECT path FROM left_out")}
        same = unchanged(root, seen, left_out, int(facts["looked_ns"])) and told(call, facts)
    finally:
        call.close()
    if not same:
        return None
    files = sum(1 for signature in seen.values() if signature != DIRECTORY_SIGNATURE)
    return {"revision": int(facts["revision"]), "files": files, "ignored": len(left_out)}
