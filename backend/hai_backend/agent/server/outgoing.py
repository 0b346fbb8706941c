"""Queues the messages of the agent besides its log. After a lost stream, unanswered messages are sent again."""

from __future__ import annotations

from dataclasses import dataclass

from hai.v1 import agent_service_pb2 as pb


@dataclass(slots=True)
class _Entry:
    message: pb.AttachRequest
    repeat: bool
    after_log: bool
    written: bool = False


class Outgoing:
    """One message per kind and place, oldest first."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def put(self, kind: str, message: pb.AttachRequest) -> None:
        """Send once; a newer message of the same kind replaces it."""
        self._add(kind, _Entry(message, repeat=False, after_log=False))

    def keep(self, kind: str, message: pb.AttachRequest, *, after_log: bool = False) -> None:
        """Send on every stream until `drop`; `after_log`: only after all log lines."""
        self._add(kind, _Entry(message, repeat=True, after_log=after_log))

    def waiting(self, kind: str) -> pb.AttachRequest | None:
        """The message of this kind that was not sent yet."""
        entry = self._entries.get(kind)
        return None if entry is None or entry.written else entry.message

    def drop(self, kind: str) -> None:
        """Remove the message of this kind: it was answered."""
        self._entries.pop(kind, None)

    def reopened(self) -> None:
        """A new stream was opened: nothing was sent on it yet."""
        for entry in self._entries.values():
            entry.written = False

    def next(self, log_is_sent: bool) -> pb.AttachRequest | None:
        """The next message to write; call `written` when that has been done."""
        for entry in self._entries.values():
            if not entry.written and (log_is_sent or not entry.after_log):
                return entry.message
        return None

    def written(self, message: pb.AttachRequest) -> None:
        """The stream has taken it."""
        for kind, entry in list(self._entries.items()):
            if entry.message is message:
                entry.written = True
                if not entry.repeat:
                    del self._entries[kind]

    def _add(self, kind: str, entry: _Entry) -> None:
        self._entries.pop(kind, None)
        self._entries[kind] = entry
