"""What /metrics says."""

from __future__ import annotations

import socket
import urllib.request
from importlib.metadata import version
from pathlib import Path

import pytest

from hai_backend.domain.errors import Unavailable
from hai_backend.domain.node import Node, NodeState
from hai_backend.domain.task import TaskState
from hai_backend.domain.workspace import Pushed
from hai_backend.metrics import prometheus
from hai_backend.metrics.prometheus import Metrics, MetricsServer, SuspendReason
from tests.small_disk import small_disk
from tests.support.builders import a_task


def _text(server: MetricsServer, host: str = "127.0.0.1") -> str:
    with urllib.request.urlopen(f"http://{host}:{server.port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize(
    ("host", "callers"),
    [
        ("::1", ["[::1]"]),
        ("[::1]", ["[::1]"]),
        ("[::]", ["127.0.0.1", "[::1]"]),
        ("0.0.0.0", ["127.0.0.1", "[::1]"]),
    ],
)
def test_they_are_read_by_either_kind_of_address(host: str, callers: list[str]) -> None:
    server = MetricsServer(Metrics(), 0, host)
    try:
        for caller in callers:
            assert "hai_leading 0.0" in _text(server, caller)
    finally:
        server.close()


def test_who_asks_nothing_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prometheus._Handler, "timeout", 0.05)
    server = MetricsServer(Metrics(), 0)
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as silent:
            assert silent.recv(1) == b""
        monkeypatch.undo()
        assert "hai_leading" in _text(server)
    finally:
        server.close()
    assert capfd.readouterr().err == ""


def test_what_is_counted_can_be_read() -> None:
    metrics = Metrics()
    metrics.call("/hai.v1.TaskService/GetTask", "OK", 0.002)
    metrics.passed(0.01)
    metrics.loop_lag(0.2)
    metrics.gc_pause(0.02)
    metrics.submitted(a_task())
    metrics.waited(a_task(), 12)
    metrics.suspended(SuspendReason.PREEMPTED)
    metrics.tasks({TaskState.RUNNING: 3})
    metrics.nodes([Node("a"), Node("b", cordoned=True), Node("c", state=NodeState.NOT_READY)])
    metrics.pushed(Pushed("done", 0.2, received_bytes=1000, changed=3, reused_chunks=7))
    metrics.wheels(5000)
    server = MetricsServer(metrics, 0)
    try:
        text = _text(server)
        with pytest.raises(Unavailable, match="cannot serve metrics"):
            MetricsServer(metrics, server.port)
    finally:
        server.close()
    for line in (
        'hai_rpc_seconds_count{code="OK",method="GetTask"} 1.0',
        "hai_scheduler_pass_seconds_count 1.0",
        'hai_loop_lag_seconds_bucket{le="0.25"} 1.0',
        "hai_gc_pause_seconds_sum 0.02",
        'hai_tasks_submitted_total{task_type="training"} 1.0',
        'hai_queue_wait_seconds_count{priority="NORMAL"} 1.0',
        'hai_suspends_total{reason="preempted"} 1.0',
        'hai_tasks{state="RUNNING"} 3.0',
        'hai_tasks{state="SUSPENDED"} 0.0',
        'hai_nodes{group="default",state="CORDONED"} 1.0',
        'hai_workspace_pushes_total{result="done"} 1.0',
        "hai_workspace_received_bytes_total 1000.0",
        "hai_workspace_changed_files_total 3.0",
        "hai_workspace_reused_chunks_total 7.0",
        "hai_workspace_push_seconds_count 1.0",
        "hai_wheels_bytes 5000.0",
    ):
        assert line in text


def test_a_group_that_is_gone_is_not_counted_for_ever() -> None:
    metrics = Metrics()
    metrics.nodes([Node("a", group="old")])
    metrics.nodes([Node("a", group="new")])
    assert (
        metrics.registry.get_sample_value("hai_nodes", {"group": "old", "state": "READY"}) is None
    )


def test_the_version_is_told() -> None:
    built = Metrics().registry.get_sample_value(
        "hai_build_info", {"version": version("hai-platform")}
    )
    assert built == 1


def test_disks_are_asked_when_the_metrics_are(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16) as disk:
        metrics = Metrics()
        metrics.watch_disks({"home": disk, "shared": tmp_path / "none"})
        read = metrics.registry.get_sample_value
        before = read("hai_disk_free_bytes", {"directory": "home"})
        (disk / "file").write_bytes(bytes(4 << 20))
        after = read("hai_disk_free_bytes", {"directory": "home"})
        assert before is not None
        assert after == before - (4 << 20)
        assert read("hai_disk_size_bytes", {"directory": "home"}) == 16 << 20
        assert str(read("hai_disk_free_bytes", {"directory": "shared"})) == "nan"
