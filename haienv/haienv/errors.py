"""The errors that haienv raises: each says what happened, to which thing, and what to do; credentials are removed.

EnvError               exit code 1
├── UsageError         2: invalid names, options or files
├── NotFound           3: no such environment, or not visible
├── Denied             4: the files belong to another user
├── Exists             1: the name already exists
├── Busy               1: another command changed it at the same time
├── DiskFull           1: the disk, or a quota, is full
├── Broken             1: the files of the environment are damaged
├── Refused            1: it would break something; --force may allow it
├── BuildFailed        1: the installer failed
├── HookFailed         1: the change was made, but a hook failed after it
└── ServerError        the code of the server's or the connection's error (haienv.cluster)
"""

from __future__ import annotations

import errno

from hai.redaction import redact

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a full disk or an exceeded quota."""
DISK_FULL_HINT = "the disk, or your quota, is full; free some space and run the command again"
_DISK_FULL_TEXTS = ("No space left on device", "Disk quota exceeded")


class EnvError(Exception):
    code: int = 1
    reason: str = "FAILED"

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = redact(message)
        self.hint = redact(hint)
        super().__init__(self.message)


class UsageError(EnvError):
    code = 2
    reason = "USAGE"


class NotFound(EnvError):
    code = 3
    reason = "NOT_FOUND"


class Denied(EnvError):
    code = 4
    reason = "DENIED"


class Exists(EnvError):
    reason = "ALREADY_EXISTS"


class Busy(EnvError):
    reason = "BUSY"


class DiskFull(EnvError):
    reason = "NO_ROOM"


class Broken(EnvError):
    reason = "BROKEN"


class Refused(EnvError):
    reason = "REFUSED"


class BuildFailed(EnvError):
    reason = "BUILD_FAILED"


def installer_failed(output: str, hint: str = "") -> EnvError:
    """The error for the output of a failed installer, which reports a full disk in its text only."""
    if any(text in output for text in _DISK_FULL_TEXTS):
        return DiskFull(output, DISK_FULL_HINT)
    return BuildFailed(output, hint)


class HookFailed(EnvError):
    reason = "HOOK_FAILED"
