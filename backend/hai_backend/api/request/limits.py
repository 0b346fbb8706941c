"""Limits on what callers may send or hold. The limits on fields of a task spec come from the client library."""

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

__all__ = [  # limits of task specs that also apply to other requests
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
REPORT_CHARS = 4096  # of a text that an agent reports: a reason, the last lines of its program
LAST_LINES_CHARS = 64 * 1024  # of all ranks of one run together
FILTER_CHARS = 4096
PAGE_SIZE = 1000
DEFAULT_PAGE_SIZE = 50
FULL_PAGE_SIZE = 100  # of tasks with their specs
QUEUE_TASKS = 2000  # in one response of ListQueue
UNFINISHED_TASKS = 10_000
UNFINISHED_SPEC_CHARS = 128 * 1024 * 1024  # of all unfinished tasks of a user, which are in memory
PRIORITY_SECONDS = 10.0  # between two changes of the priority of one task by its user
AGENT_MESSAGES_PER_SECOND = 200.0  # of one rank; a message holds up to 64 KiB of its log
AGENT_MESSAGES_AT_ONCE = 1000.0
AGENT_HELLO_MESSAGES = 20.0  # a new stream counts as so many messages
BUNDLE_BYTES = 1024 * 1024  # one message of a stream
NODES_BYTES = 64 * 1024  # one message of WatchNodes, which takes a few milliseconds to build
AGENT_GPUS = 64  # in one report of an agent
TASK_GPUS = 10_000  # in the answer to GetTask
LOG_SECONDS = 0.1  # between two messages of a stream that follows a log
LOG_PAUSES = 9.0  # the same, in multiples of the time that it takes to read the log
LOG_SECONDS_MAX = 1.0  # the longest of these pauses
LOG_PAGE_BYTES = 256 * 1024  # one page of a log that is read backwards
USAGE_POINTS = 500  # of one series
USAGE_POINTS_IN_ALL = 20_000  # of all series in one response
PAGE_BYTES = 3 * 1024 * 1024  # of one page; clients accept 4 MiB


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits on calls. They are high, so that they stop runaway loops only."""

    calls_per_second: float = 5000.0  # per user, sustained
    calls_at_once: float = 10_000.0  # per user, in one burst
    open_streams: int = 100  # per user
    call_seconds: float = 60.0  # of a unary call; its deadline may be shorter
    message_bytes: int = 4 * 1024 * 1024
    streams_per_connection: int = 1000


DEFAULTS = CallLimits()
