"""Defines the errors of haienv. Each says what happened, to which thing, and what to do, without credentials.

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


class HookFailed(EnvError):
    reason = "HOOK_FAILED"
