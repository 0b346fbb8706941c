"""Every limit on what callers may send or hold, but for those on the fields of a task spec, which clients share."""

from __future__ import annotations

from dataclasses import dataclass

from hai.client.taskfile.validation.limits import (
    COMMAND_CHARS,
    IMAGE_CHARS,
    NAME_CHARS,
    NODES,
    SECONDS,
    SERVICES,
    SPEC_BYTES,
    TAG_CHARS,
    TAGS,
    URL_CHARS,
)

__all__ = [  # limits of task specs that count for other requests too
    "COMMAND_CHARS",
    "IMAGE_CHARS",
    "NAME_CHARS",
    "NODES",
    "SECONDS",
    "SERVICES",
    "SPEC_BYTES",
    "TAGS",
    "TAG_CHARS",
    "URL_CHARS",
]

LABELS = 64  # of one node
USER_GROUPS = 1000  # of one user
RIGHTS = 1000  # of one user
DESCRIPTION_CHARS = 255
REASON_CHARS = 511
LOCK_CHARS = 64
SAID_CHARS = 4096  # what an agent tells of its program: a reason, last lines
LAST_LINES_CHARS = 64 * 1024  # of all ranks of one run together
FILTER_CHARS = 4096
PAGE_SIZE = 1000
DEFAULT_PAGE_SIZE = 50
FULL_PAGE_SIZE = 100  # of tasks with their whole specs
QUEUE_TASKS = 2000  # in one answer of ListQueue
UNFINISHED_TASKS = 10_000
UNFINISHED_LETTERS = 128 * 1024 * 1024  # of the specs of a user's tasks together, held in memory
PRIORITY_SECONDS = 10.0  # between two changes of one task's priority by its user
AGENT_MESSAGES_PER_SECOND = 200.0  # of one rank; a large one is 64 KiB of its log
AGENT_MESSAGES_AT_ONCE = 1000.0
AGENT_HELLO_MESSAGES = 20.0  # a new stream counts as so many
BUNDLE_BYTES = 1024 * 1024  # one message of a stream
NODES_BYTES = 64 * 1024  # the same, of nodes: to make so many takes the server a few milliseconds
LOG_SECONDS = 0.1  # between two answers to who follows a log
LOG_PAGE_BYTES = 256 * 1024  # a page of a log that is read towards its beginning
USAGE_POINTS = 500  # of one series
USAGE_POINTS_IN_ALL = 20_000  # of all series in one answer
PAGE_BYTES = 3 * 1024 * 1024  # one page; clients take 4 MiB


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits on calls; generous: they stop runaway loops, not people."""

    calls_per_second: float = 5000.0  # per user, sustained
    calls_at_once: float = 10_000.0  # per user, in one burst
    open_streams: int = 100  # per user
    call_seconds: float = 60.0  # a unary call without a shorter deadline of its own
    message_bytes: int = 4 * 1024 * 1024
    streams_per_connection: int = 1000


DEFAULTS = CallLimits()
