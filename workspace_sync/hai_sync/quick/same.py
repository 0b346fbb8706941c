"""Which files of a directory are not as they were when it was last looked at? One walk, which ends at the first doubt.

The same question as `scan` answers, but only for the usual case that files were edited. Rules need not be read: files
of rules are files of the tree themselves, and paths that they left out the last time are known.
"""

from __future__ import annotations

import os
import time

from hai_sync.file_fingerprint import DIRECTORY_SIGNATURE, PACK, RACY_NS
from hai_sync.slow_storage import is_slow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Set

OWN = ".hfai"
RULES = (".gitignore", ".haiignore", ".hfignore")
"""Files of rules; later ones win."""

_TYPE, _REGULAR = 0o170000, 0o100000
_WALK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def edited(
    root: str, seen: Mapping[str, bytes], left_out: Set[str], looked_ns: int
) -> dict[str, bytes] | None:
    """Files that have another signature than the one that was seen, with that; None: something else is different."""
    latest, pack = looked_ns - RACY_NS, PACK.pack
    found: dict[str, bytes] = {}
    todo, left, began = [""], len(seen), time.monotonic()
    while todo:
        prefix = todo.pop()
        folder = os.open(f"{root}/{prefix}", _WALK)
        try:
            with os.scandir(folder) as items:
                for item in items:
                    path = prefix + item.name
                    before = seen.get(path)
                    if before is None:
                        if not _is_left_out(path, item, left_out):
                            return None
                        continue
                    left -= 1
                    if not left % 64 and is_slow(time.monotonic() - began, len(seen) - left):
                        return None  # the whole program looks at many files at a time
                    if before == DIRECTORY_SIGNATURE:
                        if not item.is_dir(follow_symlinks=False):
                            return None
                        todo.append(path + "/")
                        continue
                    status = item.stat(follow_symlinks=False)
                    changed, moved = status.st_mtime_ns, status.st_ctime_ns
                    now = pack(status.st_size, changed, moved, status.st_ino, status.st_mode)
                    if before != now or changed >= latest or moved >= latest:
                        if not _are_files(before, now) or item.name in RULES:
                            return None
                        found[path] = now
        finally:
            os.close(folder)
    return None if left else found


def _are_files(*signatures: bytes) -> bool:
    modes = (PACK.unpack(each)[-1] for each in signatures)
    return all(mode & _TYPE == _REGULAR for mode in modes)


def _is_left_out(path: str, item: os.DirEntry[str], left_out: Set[str]) -> bool:
    """Rules that are left out themselves may have changed unseen."""
    if item.name in RULES:
        return False
    directory = item.is_dir(follow_symlinks=False)
    return path == OWN or (path + "/" if directory else path) in left_out
