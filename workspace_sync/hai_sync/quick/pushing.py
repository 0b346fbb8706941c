"""A push of a few edited files: what `session` and `remote` do for all pushes, for the case that is left when nothing
else may be different.

The files are read before anything is said, and each is the one that was seen while it was read. The server has the
revision that we know, or refuses; it verifies all contents, and commits all or nothing. Where it does not say that it
has, nothing is remembered, and the whole program pushes.
"""

from __future__ import annotations

import os

from hai_sync.file_fingerprint import PACK, signature
from hai_sync.identity import author, client_id
from hai_sync.quick.wire import field, fields, message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hai_sync.quick.calling import Line

_SERVICE = "/hai.v1.WorkspaceService/"
_MOST, _FILE_BYTES, _MOST_BYTES = 1000, 1 << 20, 2 << 20  # more is worth compressing
_MESSAGE_BYTES = 1 << 20
_SECONDS = 600.0  # a server flushes to its disk before it answers
_FILE = 1  # hai.v1.EntryKind
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BEGIN, _CHANGES, _CONTENTS, _COMMIT = 1, 2, 4, 5  # of PushTreeRequest
_REVISION = 3  # of PushTreeResponse


class Edited:
    """One file as it was read."""

    def __init__(self, path: str, seen: bytes, data: bytes, digest: bytes) -> None:
        self.path = path
        self.seen = seen
        self.data = data
        self.digest = digest
        self.size, self.mtime_ns, _, _, mode = PACK.unpack(seen)
        self.executable = bool(mode & 0o100)

    def entry(self) -> bytes:
        """As WorkspaceEntry."""
        what = ((1, self.path), (2, _FILE), (3, int(self.executable)), (4, self.size))
        return message(*what, (5, max(0, self.mtime_ns)), (6, self.digest))


def read(root: str, found: Mapping[str, bytes]) -> list[Edited] | None:
    """Their contents; None: too much for this, or one changes while it is read. Raises OSError."""
    sizes = [PACK.unpack(seen)[0] for seen in found.values()]
    if len(sizes) > _MOST or max(sizes, default=0) > _FILE_BYTES or sum(sizes) > _MOST_BYTES:
        return None
    from blake3 import blake3

    files = []
    for path, seen in sorted(found.items()):
        file = os.open(f"{root}/{path}", _READ)
        try:
            data = os.read(file, _FILE_BYTES + 1)
            if signature(os.fstat(file)) != seen or len(data) != PACK.unpack(seen)[0]:
                return None
        finally:
            os.close(file)
        files.append(Edited(path, seen, data, blake3(data).digest()))
    return files


def push(line: Line, name: str, memory: str, revision: int, files: Sequence[Edited]) -> int:
    """The new revision; 0: the server did not say that there is one. Raises OSError."""
    token = _lease(line, name, memory)
    if not token:
        return 0
    try:
        line.wait(_SECONDS)
        line.call(_SERVICE + "PushTree", _requests(name, token, revision, files))
        made = [dict(fields(answer)).get(_REVISION) for answer in line.answers()]
    finally:
        line.call(_SERVICE + "LeaseWorkspace", [message((1, name), (2, token), (4, 1))])
        line.answers()
    told = made[-1] if made else None
    number = dict(fields(told)).get(1, 0) if isinstance(told, bytes) else 0
    return number if isinstance(number, int) else 0


def _lease(line: Line, name: str, memory: str) -> str:
    """The token of the right to write; empty: somebody else has it."""
    request = message((1, name), (3, author("push")), (6, client_id(memory)))
    line.call(_SERVICE + "LeaseWorkspace", [request])
    answers = line.answers()
    lease = dict(fields(answers[0])) if answers else {}
    token = lease.get(1, b"")
    return token.decode() if isinstance(token, bytes) else ""


def _requests(name: str, token: str, revision: int, files: Sequence[Edited]) -> Iterator[bytes]:
    begin = message((1, name), (2, token), (3, revision), (4, author("push")))
    yield field(_BEGIN, begin)
    yield field(_CHANGES, b"".join(field(1, file.entry()) for file in files))
    messages = 2
    for group in _groups(files):
        messages += 1
        yield field(_CONTENTS, _contents(group))
    yield field(_COMMIT, message((1, messages)))


def _groups(files: Sequence[Edited]) -> Iterator[list[Edited]]:
    group: list[Edited] = []
    size = 0
    for file in {file.digest: file for file in files}.values():
        if group and size + file.size > _MESSAGE_BYTES:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    if group:
        yield group


def _contents(group: Sequence[Edited]) -> bytes:
    """As PushContents, with the data first."""
    data = field(3, b"".join(file.data for file in group))
    return data + b"".join(field(1, file.digest) + field(2, file.size) for file in group)
