"""Computes the fingerprint of a file: its size, times, inode and mode, packed into bytes.

Equal fingerprints mean equal content, unless the file changed so shortly before the scan that a second change could
leave the same times. `is_racy` detects that.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

Fingerprint = bytes
LAYOUT = struct.Struct("<qqqqI")
DIRECTORY_FINGERPRINT = b"d"
RACY_NS = 2_000_000_000
"""Age below which a change may leave the same times: the coarsest file systems store times in steps of two seconds."""

_TYPE_MASK, _DIRECTORY = 0o170000, 0o040000


def fingerprint(status: os.stat_result) -> Fingerprint:
    """Pack the result of lstat. All directories have the same fingerprint, because their members are scanned anyway."""
    if status.st_mode & _TYPE_MASK == _DIRECTORY:
        return DIRECTORY_FINGERPRINT
    return LAYOUT.pack(
        status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode
    )


def is_racy(fingerprint: Fingerprint, scanned_at_ns: int) -> bool:
    """Return whether the file may have changed after the scan without a new fingerprint."""
    if fingerprint == DIRECTORY_FINGERPRINT:
        return False
    _, mtime_ns, ctime_ns, _, _ = LAYOUT.unpack(fingerprint)
    return bool(max(mtime_ns, ctime_ns) >= scanned_at_ns - RACY_NS)
