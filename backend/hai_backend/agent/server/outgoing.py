"""Queues the messages of the agent, except log lines. Messages that must not be lost are sent again on a new stream."""

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
    """A queue with at most one message of each kind. The oldest message is the first."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def put(self, kind: str, message: pb.AttachRequest) -> None:
        """Send a message once. A newer message of the same kind replaces it."""
        self._add(kind, _Entry(message, repeat=False, after_log=False))

    def keep(self, kind: str, message: pb.AttachRequest, *, after_log: bool = False) -> None:
        """Send a message on every stream until `drop` is called. With `after_log`, send it only after all log lines."""
        self._add(kind, _Entry(message, repeat=True, after_log=after_log))

    def unsent(self, kind: str) -> pb.AttachRequest | None:
        """Return the message of this kind if it was not sent yet."""
        entry = self._entries.get(kind)
        return None if entry is None or entry.written else entry.message

    def drop(self, kind: str) -> None:
        """Remove the message of this kind, if there is one."""
        self._entries.pop(kind, None)

    def resend_all(self) -> None:
        """Send all messages again, because a new stream has begun."""
        for entry in self._entries.values():
            entry.written = False

    def next(self, log_is_sent: bool) -> pb.AttachRequest | None:
        """Return the next message to write; None if there is none. Call `mark_written` when it was written."""
        for entry in self._entries.values():
            if not entry.written and (log_is_sent or not entry.after_log):
                return entry.message
        return None

    def mark_written(self, message: pb.AttachRequest) -> None:
        """Record that a message was written to the stream."""
        for kind, entry in list(self._entries.items()):
            if entry.message is message:
                entry.written = True
                if not entry.repeat:
                    del self._entries[kind]

    def _add(self, kind: str, entry: _Entry) -> None:
        self._entries.pop(kind, None)
        self._entries[kind] = entry
