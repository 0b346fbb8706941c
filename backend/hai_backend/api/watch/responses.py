"""Encodes bundles of tasks as responses of WatchTasks. Each state of a task is encoded once for all streams."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hai.v1.task_service_pb2 import WatchTasksResponse
from hai_backend.api.request import limits
from hai_backend.api.tasks.convert import task_to_proto
from hai_backend.api.watch.cache import Bundle
from hai_backend.api.watch.wire import integer_field, message_field
from hai_backend.domain.scheduling.plan import Wait
from hai_backend.domain.task import Task

_KEPT_BYTES = 32 * 1024 * 1024  # of encoded tasks
_TASKS = WatchTasksResponse.TASKS_FIELD_NUMBER
_VERSION = WatchTasksResponse.VERSION_FIELD_NUMBER


@dataclass(frozen=True, slots=True)
class _Encoded:
    version: int
    wait: Wait | None
    field: bytes


class TaskEncoder:
    """Encodes tasks. `wait_of` returns why a task waits, which may change while the task does not."""

    def __init__(self, wait_of: Callable[[int], Wait | None]) -> None:
        self._wait_of = wait_of
        self._encoded: OrderedDict[int, _Encoded] = (
            OrderedDict()
        )  # by task; the last used one is last
        self._bytes = 0

    def responses(self, bundle: Bundle) -> list[bytes]:
        """Return the encoded responses of a bundle. Only the last one has the version of the bundle."""
        if not bundle.responses:
            bundle.responses = list(self._encode(bundle))
        return bundle.responses

    def _encode(self, bundle: Bundle) -> Iterator[bytes]:
        fields, size = list[bytes](), 0
        for task in bundle.tasks:
            field = self._field(task)
            if fields and size + len(field) > limits.BUNDLE_BYTES:
                yield b"".join((*fields, integer_field(_VERSION, bundle.begin)))
                fields, size = [], 0
            fields.append(field)
            size += len(field)
        yield b"".join((*fields, integer_field(_VERSION, bundle.version)))

    def _field(self, task: Task) -> bytes:
        """Return a task as an element of WatchTasksResponse.tasks."""
        wait = self._wait_of(task.id) if task.waiting else None
        known = self._encoded.get(task.id)
        if known is not None and known.version == task.version and known.wait == wait:
            self._encoded.move_to_end(task.id)
            return known.field
        field = message_field(_TASKS, task_to_proto(task, wait).SerializeToString())
        self._put(task.id, _Encoded(task.version, wait, field))
        return field

    def _put(self, task_id: int, encoded: _Encoded) -> None:
        if (old := self._encoded.pop(task_id, None)) is not None:
            self._bytes -= len(old.field)
        self._encoded[task_id] = encoded
        self._bytes += len(encoded.field)
        while self._bytes > _KEPT_BYTES:
            _, oldest = self._encoded.popitem(last=False)
            self._bytes -= len(oldest.field)
