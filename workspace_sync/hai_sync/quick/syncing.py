"""`push` with nothing to push, or only edited files: what it did, or None where anything is in doubt; then the whole
program looks.

It needs that the last sync was clean, that nothing but contents of files is different here, and that the server still
has the revision that this sync ended with. The server is asked first and answers while we walk.
"""

from __future__ import annotations

import fcntl
import gc
import os
import sqlite3
import sys
import time

from hai_sync.file_fingerprint import DIRECTORY_SIGNATURE
from hai_sync.quick.asking import ask, connected, told
from hai_sync.quick.memory import Memory
from hai_sync.quick.same import OWN, edited
from hai_sync.root_identity import mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from hai_sync.quick.calling import Line

SETTINGS = {"bwlimit", "jobs", "links", "strict"}
"""Of a workspace, which mean something for a push that is in no conflict."""

DEFAULT_FILTER = "((), (), True, 'auto')"
"""The fingerprint of a filter that leaves out nothing but what is left out always."""


def quick_push(root: str, only_look: bool = False) -> Mapping[str, int] | None:
    """Facts of what it did. `only_look`: what is to be pushed is a doubt, too."""
    gc.disable()  # everything that is made here is done with at the end of the program, or soon
    try:
        return _push(root, only_look)
    except (OSError, sqlite3.Error, ValueError, KeyError):
        return None
    finally:
        gc.enable()


def _push(root: str, only_look: bool) -> Mapping[str, int] | None:
    config = _config(f"{root}/{OWN}/workspace.yml")
    if config.keys() & SETTINGS:
        return None
    state = f"{_data()}/hai/workspaces/{config['id']}"
    if os.path.exists(f"{root}/{OWN}/tmp"):
        return None  # a sync was interrupted
    with open(f"{state}/lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        memory = Memory(state)
        try:
            return _with_memory(root, config["name"], memory, only_look)
        finally:
            memory.close()


def _with_memory(root: str, name: str, memory: Memory, only_look: bool) -> Mapping[str, int] | None:
    facts = memory.facts
    clean = facts["clean"] == "yes" and facts["filter"] == DEFAULT_FILTER
    ours = facts["root"] == mark(root)  # else it is a copy, or was moved
    line = connected(facts) if clean and ours and memory.agreed() else None
    if line is None:
        return None
    try:
        return _compared(root, name, memory, line, only_look)
    finally:
        line.close()


def _compared(
    root: str, name: str, memory: Memory, line: Line, only_look: bool
) -> Mapping[str, int] | None:
    ask(line, name)
    began = time.time_ns()
    seen, left_out = memory.seen(), memory.left_out()
    found = edited(root, seen, left_out, int(memory.facts["looked_ns"]))
    if found is None or (found and only_look) or not told(line, memory.facts):
        return None
    revision, pushed, size = int(memory.facts["revision"]), 0, 0
    if found:
        from hai_sync.quick.pushing import push, read

        files = read(root, found)
        if files is None:
            return None
        changed = memory.changed(files)
        if changed:
            revision = push(line, name, memory.facts["name"], revision, changed)
        if not revision:
            return None
        memory.remember(files, changed, revision, began)
        pushed, size = len(changed), sum(file.size for file in changed)
    files_here = sum(1 for signature in seen.values() if signature != DIRECTORY_SIGNATURE)
    return {
        "revision": revision,
        "files": files_here,
        "ignored": len(left_out),
        "uploaded": pushed,
        "wire_bytes": size,
    }


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
