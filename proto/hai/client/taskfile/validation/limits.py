"""All limits on the fields of a task spec."""

from __future__ import annotations

NAME_CHARS = 511
WORKSPACE_CHARS = 255
COMMAND_CHARS = 2047  # workspace, entrypoint and parameters together, as in HAI
SPEC_BYTES = 256 * 1024
# of one variable `NAME=value`: Linux refuses to start a program with a longer one
VALUE_BYTES = 128 * 1024 - 1
IMAGE_CHARS = 255
REVISION_CHARS = 255
URL_CHARS = 2048
PART_BYTES = 255  # of one part of a path: no file system has longer names
NODES = 10_000
GPUS = 1024
CPUS = 4096
MEMORY_GB = 1_000_000
SERVICES = 64
ROLES = 64
TAGS = 64
TAG_CHARS = 64
RETRIES = 1000
SECONDS = 366 * 24 * 3600
ACK_SECONDS = 300.0
SAVE_SECONDS = 3600.0
PREDECESSORS = 1000  # of one task, which may wait for a whole sweep
PORT = 65_535
INT32 = 2**31 - 1
INT64 = 2**63 - 1
