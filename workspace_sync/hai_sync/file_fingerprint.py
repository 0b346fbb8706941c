"""What the file system says of a file, packed: size, times, inode and mode.

An equal signature means equal content, unless the file changed so shortly before it was looked at that a second
change could have left the same times; whoever compares signatures asks `racy`.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

Signature = bytes
PACK = struct.Struct("<qqqqI")
DIRECTORY_SIGNATURE = b"d"
RACY_NS = 2_000_000_000
"""Times of the coarsest file systems move in steps of two seconds."""

_TYPE, _FOLDER = 0o170000, 0o040000


def signature(status: os.stat_result) -> Signature:
    """Of what lstat says. Directories have none of interest: their members are looked at anyway."""
    if status.st_mode & _TYPE == _FOLDER:
        return DIRECTORY_SIGNATURE
    return PACK.pack(
        status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode
    )


def racy(seen: Signature, looked_ns: int) -> bool:
    """True when the file may have changed after it was looked at without showing it."""
    if seen == DIRECTORY_SIGNATURE:
        return False
    _, mtime_ns, ctime_ns, _, _ = PACK.unpack(seen)
    return bool(max(mtime_ns, ctime_ns) >= looked_ns - RACY_NS)
