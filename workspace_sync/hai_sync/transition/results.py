"""What a transition has done, and the words for what it could not do."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field

from hai_sync.core.diff import Change
from hai_sync.file_fingerprint import Signature


@dataclass(slots=True)
class Result:
    """What was done, and what was not."""

    done: list[Change] = field(default_factory=list)
    signatures: dict[str, Signature] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    restless: set[str] = field(default_factory=set)  # changed after they were looked at


class Moved(Exception):
    """The path is not as it was when the decision was made."""


def words(error: OSError) -> str:
    """Why a path stays as it is."""
    if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
        return "the directory stays: it holds files that are not synced"
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a part of the way to it is a link or a file"
    return os.strerror(error.errno) if error.errno else str(error)
