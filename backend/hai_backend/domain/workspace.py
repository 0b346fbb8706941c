"""Workspaces: file trees of a user that are synchronized between computers and the cluster's storage.

A path is relative, and its parts are joined by "/". All paths and link targets from clients are validated here.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field, replace
from enum import IntEnum
from posixpath import normpath

SCHEME = "haiworkspace://"
PATH_BYTES = 3000  # below the root; Linux allows 4095 bytes for the whole path
PART_BYTES = 255
PARTS = 100
DIGEST_BYTES = 32
FILE_BYTES = 1 << 50
PASSED_OVER = 1000  # skipped paths that are reported with their reasons
OWN = ".hfai"
"""The directory in the root of a tree for the private state of each side. It is never synchronized."""
_HOSTILE = re.compile(r"(^|/)\.{0,2}(/|$)|\0")
_REFERENCE = re.compile(
    r"haiworkspace://([A-Za-z0-9][A-Za-z0-9._-]{0,62})"
    r"(?:@(?:([0-9]{1,15})|([A-Za-z0-9][A-Za-z0-9._-]{0,62})))?(?:/(.*))?",
    re.DOTALL,
)


class EntryKind(IntEnum):
    """What a path is, with the numbers of hai.v1.EntryKind. In a change, NONE removes the path."""

    NONE = 0
    FILE = 1
    DIRECTORY = 2
    SYMLINK = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a tree. Size, time, digest and executable belong to files, `target` to symbolic links."""

    path: str
    kind: EntryKind
    executable: bool = False
    size: int = 0
    mtime_ns: int = 0
    digest: bytes = b""
    target: str = ""


@dataclass(frozen=True, slots=True)
class Pushed:
    """Statistics of one push. `result` is done, refused or broken."""

    result: str
    seconds: float
    received_bytes: int
    changed: int  # paths in the new revision
    reused_chunks: int  # chunks of large files that were not transferred


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a large file."""

    digest: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Revision:
    """One state of a workspace."""

    number: int
    created_at: float
    author: str
    changed: int
    removed: int
    files: int
    size_bytes: int
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskTree:
    """The directory of a task, created from a revision."""

    task: int
    revision: int
    size_bytes: int
    created_at: float


NOTHING = Revision(0, 0.0, "", 0, 0, 0, 0)
"""The revision of a workspace before the first push."""


@dataclass(slots=True)
class PassedOver:
    """Files of a tree that are not part of a revision, with reasons. Beyond a limit, only their number is kept."""

    reasons: dict[str, str] = field(default_factory=dict)
    more: int = 0

    def add(self, path: str, reason: str) -> None:
        """Add a path. Bytes that are not valid text are escaped."""
        if len(self.reasons) < PASSED_OVER:
            self.reasons[path.encode(errors="backslashreplace").decode()] = reason
        else:
            self.more += 1


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to one workspace."""

    token: str
    holder: str
    expires_at: float
    revision: int
    client_id: str = ""  # of the client, whose processes may take over the lease from each other

    def shown(self) -> Lease:
        """Return the lease without its secrets."""
        return replace(self, token="", client_id="")


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace as shown to users."""

    user: str
    name: str
    path: str
    created_at: float
    newest: Revision
    stored_bytes: int
    quota_bytes: int = 0
    lease: Lease | None = None
    case_insensitive: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """The workspace of a task, written `haiworkspace://NAME@REVISION/FOLDER`, or with a tag instead of a revision.

    Without both, it is the newest revision at submission.
    """

    name: str
    revision: int = 0
    folder: str = ""
    tag: str = ""

    def __str__(self) -> str:
        at = f"@{self.revision or self.tag}" if self.revision or self.tag else ""
        return f"{SCHEME}{self.name}{at}" + (f"/{self.folder}" if self.folder else "")


def parse_reference(text: str) -> Reference | None:
    """Parse the workspace of a task. Return None for a plain directory. Raises ValueError."""
    if not text.startswith(SCHEME):
        return None
    found = _REFERENCE.fullmatch(text)
    folder = (found[4] or "").strip("/") if found else ""
    if found is None or (folder and path_problem(folder)):
        raise ValueError(
            f"must look like {SCHEME}NAME@REVISION or {SCHEME}NAME@REVISION/FOLDER, with a number or a tag"
        )
    return Reference(found[1], int(found[2] or 0), folder, found[3] or "")


def path_problem(path: str) -> str:
    """Say why this is not a valid path of a tree; return an empty text if it is."""
    if _HOSTILE.search(path):
        return "must be relative, without empty parts, '.', '..' and NUL"
    if path.isascii():
        size = len(path)
    else:
        size = len(path.encode())
        if not unicodedata.is_normalized("NFC", path):
            return "must be in Unicode normal form NFC"
    if size <= PART_BYTES:
        return ""
    return _length_problem(path, size)


def _length_problem(path: str, size: int) -> str:
    parts = path.split("/")
    if size > PATH_BYTES or len(parts) > PARTS:
        return f"has {size} bytes in {len(parts)} parts; at most {PATH_BYTES} in {PARTS} are taken"
    if any(len(part.encode()) > PART_BYTES for part in parts):
        return f"has a part of more than {PART_BYTES} bytes"
    return ""


def entry_problem(entry: Entry) -> str:
    """Say why this is not a valid entry of a change; return an empty text if it is."""
    if problem := path_problem(entry.path):
        return problem
    if entry.kind is EntryKind.FILE:
        if len(entry.digest) != DIGEST_BYTES:
            return f"needs a BLAKE3 digest of {DIGEST_BYTES} bytes"
        if not 0 <= entry.size <= FILE_BYTES:
            return f"has {entry.size} bytes, which no file has"
        if not 0 <= entry.mtime_ns < 1 << 63:
            return "has a time before 1970"
    if entry.kind is EntryKind.SYMLINK:
        return target_problem(entry.path, entry.target)
    return ""


def pushed_problem(entry: Entry) -> str:
    """Say why a client may not push this entry; return an empty text if it may.

    Absolute link targets are allowed, because the server follows no links.
    """
    if is_own(entry.path):
        return f"lies in {OWN}, which is private to each side; leave it out"
    if entry.kind is EntryKind.SYMLINK and entry.target.startswith("/"):
        return path_problem(entry.path) or _target_fault(entry.target)
    return entry_problem(entry)


def is_own(path: str) -> bool:
    """Return whether a path belongs to the private state of a side."""
    return path == OWN or path.startswith(f"{OWN}/")


def target_problem(path: str, target: str) -> str:
    """Say why a link may not have this target; return an empty text if the target is inside the workspace."""
    if problem := _target_fault(target):
        return problem
    if target.startswith("/"):
        return "is a symbolic link to an absolute path; only relative ones inside the workspace are kept"
    led = normpath(f"{folder_of(path)}/{target}".lstrip("/"))
    if led == ".." or led.startswith("../"):
        return "is a symbolic link that leads out of the workspace"
    return ""


def _target_fault(target: str) -> str:
    """Say why no link can have this target; return an empty text if a link can."""
    nowhere = not target or "\0" in target or len(target.encode()) > PATH_BYTES
    return "is a symbolic link that leads nowhere" if nowhere else ""


def folder_of(path: str) -> str:
    """Return the path of the parent directory; empty for the root."""
    return path.rpartition("/")[0]


def joined(folder: str, name: str) -> str:
    """Return the path of a name in a directory."""
    return f"{folder}/{name}" if folder else name


def folders_above(path: str) -> list[str]:
    """Return all parent directories except the root, the outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


def same(a: Entry, b: Entry) -> bool:
    """Return whether two entries are equal except for their times."""
    return (a.kind, a.executable, a.digest, a.target) == (b.kind, b.executable, b.digest, b.target)
