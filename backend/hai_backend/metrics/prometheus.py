"""Defines all hai_* metrics, in a separate registry. No label contains an id or a user name, to limit the series."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import partial
from importlib.metadata import version
from math import inf, nan
from pathlib import Path
from typing import Literal
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from hai.host.disk_reserve import disk_space
from hai_backend.domain.errors import Unavailable
from hai_backend.domain.node import Node
from hai_backend.domain.task import Task, TaskState
from hai_backend.domain.workspace import Pushed
from hai_backend.scheduler.invariants import RULES

_WAITS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 7 * 24 * 3600)
_PASSES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_PUSHES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_LAGS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_CALLS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)


class SuspendReason(StrEnum):
    """Why a run was asked to suspend."""

    PREEMPTED = "preempted"  # for another task
    REQUESTED = "asked"  # by a user, a drain or a limit


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        gauge = partial(Gauge, registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self._tasks = gauge("hai_tasks", "Unfinished tasks.", ["state"])
        self._queue = gauge(
            "hai_queue_tasks", "Tasks that wait for nodes: not held, nor for others.", ["group"]
        )
        self._nodes = gauge("hai_nodes", "Nodes of each group.", ["group", "state"])
        self._silent_agents = gauge(
            "hai_silent_agents", "Agents that were not heard for two heartbeats."
        )
        self._leading = gauge("hai_leading", "1 while this server leads, else 0.")
        built = gauge("hai_build_info", "1, with the version of this server.", ["version"])
        built.labels(version("hai-platform")).set(1)
        self._certificate = gauge(
            "hai_certificate_expiry_timestamp_seconds",
            "When the server's certificate expires, as a unix time; +Inf without TLS.",
        )
        self._certificate.set(inf)
        self._disk_free = gauge(
            "hai_disk_free_bytes",
            "What may be written to the disk of a directory before the database's reserve begins.",
            ["directory"],
        )
        self._disk_size = gauge("hai_disk_size_bytes", "Size of that disk.", ["directory"])
        self._submitted = counter("hai_tasks_submitted", "Tasks accepted.", ["task_type"])
        self._finished = counter("hai_tasks_finished", "Tasks ended.", ["outcome"])
        self._suspended = counter("hai_suspends", "Runs asked to leave their nodes.", ["reason"])
        self._waited = histogram(
            "hai_queue_wait_seconds", "From the queue to the nodes.", ["priority"], buckets=_WAITS
        )
        self._passes = histogram(
            "hai_scheduler_pass_seconds", "One scheduling pass.", buckets=_PASSES
        )
        self._lags = histogram(
            "hai_loop_lag_seconds", "How late the event loop runs a timer.", buckets=_LAGS
        )
        self._gc_pauses = histogram(
            "hai_gc_pause_seconds", "One pause for garbage collection.", buckets=_LAGS
        )
        self._plan_checks = counter(
            "hai_scheduler_checks", "Passes that were checked against the scheduler's invariants."
        )
        self._plan_violations = counter(
            "hai_scheduler_violations", "Breaches of invariants that the checks found.", ["rule"]
        )
        for rule in RULES:
            # exports 0 from the start, so that the first increase is visible
            self._plan_violations.labels(rule)
        self._calls = histogram("hai_rpc_seconds", "One call.", ["method", "code"], buckets=_CALLS)
        self._watch_streams = gauge("hai_watch_streams", "Open streams of changes of tasks.")
        workspace = partial(counter, namespace="hai_workspace")
        self._pushes = workspace("pushes", "Pushes that have ended.", ["result"])
        self._received = workspace("received_bytes", "Contents that pushes brought.")
        self._changed = workspace("changed_files", "Paths that pushes have changed or removed.")
        self._reused = workspace("reused_chunks", "Of large files: were here already.")
        self._push_seconds = histogram(
            "hai_workspace_push_seconds", "From begin to the answer.", buckets=_PUSHES
        )
        self._wheels = gauge("hai_wheels_bytes", "Wheels for builds, as of this server's last one.")
        self._webhook_requests = counter(
            "hai_webhook_requests", "Requests to webhooks.", ["result"]
        )
        # cached, because `labels` is slow and calls are frequent
        self._series: dict[tuple[str, str], Histogram] = {}

    def call(self, method: str, code: str, seconds: float) -> None:
        """Record a call and its duration. A stream counts with its whole duration."""
        series = self._series.get((method, code))
        if series is None:
            series = self._calls.labels(method.rpartition("/")[2], code)
            self._series[method, code] = series
        series.observe(seconds)

    def watched(self, streams: int) -> None:
        """Record the number of open streams of changes of tasks."""
        self._watch_streams.set(streams)

    def passed(self, seconds: float) -> None:
        """Record the duration of a scheduling pass."""
        self._passes.observe(seconds)

    def loop_lag(self, seconds: float) -> None:
        """Record how late the event loop has run a timer."""
        self._lags.observe(seconds)

    def gc_pause(self, seconds: float) -> None:
        """Record a pause for garbage collection."""
        self._gc_pauses.observe(seconds)

    def plan_checked(self) -> None:
        """Count a scheduling pass that was checked against the invariants."""
        self._plan_checks.inc()

    def plan_violated(self, rule: str) -> None:
        """Count a violation of a rule of scheduler.invariants."""
        self._plan_violations.labels(rule).inc()

    def submitted(self, task: Task) -> None:
        """Count a submitted task."""
        self._submitted.labels(task.spec.task_type.value).inc()

    def finished(self, task: Task) -> None:
        """Count a finished task by its outcome."""
        self._finished.labels(task.outcome.value if task.outcome else "NONE").inc()

    def waited(self, task: Task, seconds: float) -> None:
        """Record how long a task waited for its nodes."""
        self._waited.labels(task.priority.name).observe(seconds)

    def watch_disks(self, directories: Mapping[str, Path]) -> None:
        """Measure the disks of these directories whenever the metrics are read."""
        for name, path in directories.items():
            self._disk_free.labels(name).set_function(partial(_of_disk, path, "free"))
            self._disk_size.labels(name).set_function(partial(_of_disk, path, "total"))

    def suspended(self, reason: SuspendReason) -> None:
        """Count a run that was asked to suspend."""
        self._suspended.labels(reason).inc()

    def pushed(self, push: Pushed) -> None:
        """Record a push to a workspace that has ended."""
        self._pushes.labels(push.result).inc()
        self._received.inc(push.received_bytes)
        self._changed.inc(push.changed)
        self._reused.inc(push.reused_chunks)
        self._push_seconds.observe(push.seconds)

    def wheels(self, size: int) -> None:
        """Set the size of all stored wheels of users, in bytes."""
        self._wheels.set(size)

    def webhook_request(self, result: str) -> None:
        """Count a request to a webhook. The result is taken, failed, or dropped after too many attempts."""
        self._webhook_requests.labels(result).inc()

    def silent_agents(self, count: int) -> None:
        """Set the number of silent agents of running programs."""
        self._silent_agents.set(count)

    def tasks(self, counts: Mapping[TaskState, int]) -> None:
        """Set the number of unfinished tasks in each state."""
        for state in TaskState:
            if state is not TaskState.FINISHED:
                self._tasks.labels(state.value).set(counts.get(state, 0))

    def queue(self, counts: Mapping[str, int]) -> None:
        """Set the number of tasks that wait for nodes, by node group."""
        self._queue.clear()
        for group, count in counts.items():
            self._queue.labels(group).set(count)

    def nodes(self, nodes: Iterable[Node]) -> None:
        """Set the number of nodes by group and state."""
        counts: dict[tuple[str, str], int] = {}
        for node in nodes:
            # An operator has cordoned this node on purpose, so it must not cause an alert if it is not ready.
            key = (node.group, "CORDONED" if node.closed else node.state.value)
            counts[key] = counts.get(key, 0) + 1
        self._nodes.clear()
        for (group, state), count in counts.items():
            self._nodes.labels(group, state).set(count)

    def leading(self, leads: bool) -> None:
        """Set whether this server leads. The sum over all servers is 1, or 0 during an election."""
        self._leading.set(leads)

    def certificate(self, expires: float) -> None:
        """Set the time at which the server's certificate expires, in seconds since the Unix epoch."""
        self._certificate.set(expires)


def _address(host: str) -> str:
    """Return the address to bind. An address for all interfaces includes IPv4 and IPv6, as for gRPC."""
    bare = host.strip("[]")
    if bare in ("0.0.0.0", "::"):
        return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
    return bare


class _Handler(WSGIRequestHandler):
    """Closes idle connections after a timeout, and logs nothing."""

    timeout = 30.0

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Log no requests."""


def _of_disk(path: Path, what: Literal["free", "total"]) -> float:
    """Return a value of the disk of a directory, or NaN if it cannot be read."""
    try:
        return float(getattr(disk_space(path), what))
    except OSError:
        return nan


class MetricsServer:
    """Serves /metrics in a separate thread until closed. Port 0 means a free port. Raises Unavailable."""

    def __init__(self, metrics: Metrics, port: int, host: str = "127.0.0.1") -> None:
        try:
            server, thread = start_http_server(port, _address(host), metrics.registry)
        except OSError as error:
            raise Unavailable(
                f"cannot serve metrics on {host}:{port}: {error.strerror}", reason="CANNOT_LISTEN"
            ) from error
        self._server: WSGIServer = server
        server.RequestHandlerClass = _Handler
        self._thread = thread

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
