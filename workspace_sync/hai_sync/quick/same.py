"""Is a directory as it was when it was last looked at? One walk, which ends at the first doubt.

The same question as `scan` answers, without an answer for what differs. Rules need not be read: files of rules are
files of the tree themselves, and paths that they left out the last time are known.
"""

from __future__ import annotations

import os

from hai_sync.signatures import DIRECTORY_SIGNATURE, PACK, RACY_NS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Set

OWN = ".hfai"
RULES = (".gitignore", ".haiignore", ".hfignore")
"""Files of rules; later ones win."""

_WALK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def unchanged(root: str, seen: Mapping[str, bytes], left_out: Set[str], looked_ns: int) -> bool:
    """True when all is as it was; False when it is not, or may not be."""
    latest, pack = looked_ns - RACY_NS, PACK.pack
    todo, left = [""], len(seen)
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
                            return False
                        continue
                    left -= 1
                    if before == DIRECTORY_SIGNATURE:
                        if not item.is_dir(follow_symlinks=False):
                            return False
                        todo.append(path + "/")
                        continue
                    now = item.stat(follow_symlinks=False)
                    changed, moved = now.st_mtime_ns, now.st_ctime_ns
                    if changed >= latest or moved >= latest:
                        return False
                    if before != pack(now.st_size, changed, moved, now.st_ino, now.st_mode):
                        return False
        finally:
            os.close(folder)
    return left == 0


def _is_left_out(path: str, item: os.DirEntry[str], left_out: Set[str]) -> bool:
    """Rules that are left out themselves may have changed unseen."""
    if item.name in RULES:
        return False
    directory = item.is_dir(follow_symlinks=False)
    return path == OWN or (path + "/" if directory else path) in left_out
