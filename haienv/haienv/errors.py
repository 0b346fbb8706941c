"""Everything that haienv raises on purpose. Each says what happened, to which thing, and what to do; none has secrets.

EnvError               exit code 1
├── UsageError         2: names, options and files that are not valid
├── NotFound           3: no such environment, or not visible
├── Denied             4: the files of another user
├── Exists             1: the name is taken
├── Busy               1: somebody else changed it meanwhile
├── NoRoom             1: the disk, or a quota of it, is full
├── Broken             1: its files are not what they should be
├── Refused            1: it would break something; --force may allow it
├── BuildFailed        1: the installer says no
├── HookFailed         1: the change is made, a command that its owner wanted after it failed
└── ServerSays         its own: an error of the server or of the way to it (haienv.cluster)
"""

from __future__ import annotations

import errno

from hai.redaction import redact

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
"""What the system calls a full disk, or a quota of it."""
DISK_FULL_HINT = "the disk, or your part of it, is full; run it again when there is room"
_DISK_FULL_TEXTS = ("No space left on device", "Disk quota exceeded")


class EnvError(Exception):
    """Root of the tree."""

    code: int = 1
    reason: str = "FAILED"

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = redact(message)
        self.hint = redact(hint)
        super().__init__(self.message)


class UsageError(EnvError):
    """Names, options or files that are not valid."""

    code = 2
    reason = "USAGE"


class NotFound(EnvError):
    """No such environment, or not visible to the caller."""

    code = 3
    reason = "NOT_FOUND"


class Denied(EnvError):
    """The files belong to somebody else."""

    code = 4
    reason = "DENIED"


class Exists(EnvError):
    """The name is taken."""

    reason = "ALREADY_EXISTS"


class Busy(EnvError):
    """Somebody else changed it meanwhile."""

    reason = "BUSY"


class DiskFull(EnvError):
    """The disk, or the caller's part of it, is full."""

    reason = "NO_ROOM"


class Broken(EnvError):
    """The files of an environment are not what they should be."""

    reason = "BROKEN"


class Refused(EnvError):
    """It would break something else."""

    reason = "REFUSED"


class BuildFailed(EnvError):
    """The installer could not do it."""

    reason = "BUILD_FAILED"


def installer_failed(output: str, hint: str = "") -> EnvError:
    """What an installer said when it failed. Of a full disk it tells in words only."""
    if any(text in output for text in _DISK_FULL_TEXTS):
        return DiskFull(output, DISK_FULL_HINT)
    return BuildFailed(output, hint)


class HookFailed(EnvError):
    """A command that was to run after a change failed; the change is made."""

    reason = "HOOK_FAILED"
