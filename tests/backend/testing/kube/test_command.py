"""The fake cluster as a command and in a thread."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import yaml

from hai_backend.testing.kube import FakeCluster
from hai_backend.testing.kube.threaded import threaded_cluster


def test_the_command_serves_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hai_backend.testing.kube", "--home", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        url = yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"]
        container = b'{"name": "c", "image": "x", "command": ["sleep", "1000"]}'
        body = b'{"metadata": {"name": "a"}, "spec": {"containers": [' + container + b"]}}"
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/api/v1/namespaces/default/pods", body, headers)
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 201
        with urllib.request.urlopen(
            f"{url}/api/v1/pods?watch=1&fieldSelector=status.phase=Running"
        ) as told:
            assert b"ADDED" in told.readline()
        (child,) = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert not child.is_running()


def test_a_thread_of_its_own() -> None:
    with threaded_cluster(lambda: FakeCluster(nodes=3)) as cluster:
        with urllib.request.urlopen(f"{cluster.url}/readyz") as answer:
            assert answer.read() == b"ok"
        assert len(cluster.objects("nodes")) == 3
        cluster.call(lambda c: c.nodes.partition("node0"))
        cluster.run(cluster.cluster.settle())
