"""Pods as local processes: their environment, their end, and the removal of all their processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from hai_backend.testing.kube import Images, ProcessKubelet

Pod = Callable[..., dict[str, Any]]
FOREVER = "while :; do sleep 0.05; done"


@pytest.fixture
async def http(clusters: Any, tmp_path: Path) -> Any:
    """Real processes on the test's clock."""
    images = Images(variables={"FROM_IMAGE": "yes"}, commands={"says": ["echo", "said"]})
    return await clusters(
        nodes=2, kubelet=lambda api: ProcessKubelet(api, tmp_path / "pods", images)
    )


async def phase(http: Any, *phases: str, name: str = "a") -> dict[str, Any]:
    await http.cluster.until(lambda: (p := http.pod(name)) and p["status"]["phase"] in phases)
    return http.pod(name) or {}


async def log(http: Any, name: str = "a", query: str = "") -> str:
    code, text = await http.ask("GET", f"api/v1/namespaces/default/pods/{name}/log{query}")
    assert code == 200, text
    return str(text)


async def said(http: Any, until: Any, word: str, name: str = "a") -> None:
    worker = http.cluster.kubelet._workers[http.cluster.kubelet.find(name).pod.uid]
    await until(lambda: any(word.encode() in line for _, line in worker.outputs["main"][-1]._lines))


async def run(http: Any, pod: Pod, script: str, name: str = "a", **spec: Any) -> str:
    """Run a script until it ends, and return its log."""
    await http.create(pod(name, "sh", "-c", script, **spec))
    await phase(http, "Succeeded", "Failed", name=name)
    return await log(http, name)


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


async def test_mount_paths_become_directories(http: Any, pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    mounts = [
        {"name": "work", "mountPath": "/hai"},
        {"name": "host", "mountPath": "/hai/in"},
        {"name": "work", "mountPath": "/sub", "subPath": "deep/er"},
    ]
    volumes = [
        {"name": "work", "emptyDir": {}},
        {"name": "host", "hostPath": {"path": f"{tmp_path}/host"}},
    ]
    env = [{"name": "OUT", "value": "/hai/in/out:/hai:/haix:/other/hai"}]
    script = 'echo "$OUT"; echo 1 > /hai/in/file; echo 2 > /sub/file; ls /hai; pwd'
    container = {"volumeMounts": mounts, "env": env, "workingDir": "/hai/deep"}
    text = await run(http, pod, script, container=container, volumes=volumes)
    first, *listed, where = text.split()
    work = where.removesuffix("/deep")
    assert first == f"{tmp_path}/host/out:{work}:/haix:/other/hai"
    assert listed == ["deep"]
    assert (tmp_path / "host" / "file").read_text() == "1\n"
    assert os.stat(f"{work}/deep/er/file").st_size == 2


async def test_a_mount_path_is_replaced_once(http: Any, pod: Pod) -> None:
    """The real directories of mounts are themselves in /tmp of this machine."""
    env = [{"name": "A", "value": "/tmp/a"}, {"name": "B", "value": "$(A)/b"}]
    container = {
        "command": ["sh", "-c", "echo $(B) $B; pwd"],
        "env": env,
        "volumeMounts": [{"name": "v", "mountPath": "/tmp"}],
        "workingDir": "/tmp/new",
    }
    await http.create(pod("a", container=container, volumes=[{"name": "v", "emptyDir": {}}]))
    await phase(http, "Succeeded")
    one, two, where = (await log(http)).split()
    assert one == two == where.removesuffix("/new") + "/a/b"
    assert one.count("/tmp") <= 1


async def test_variables_are_those_of_the_pod_and_its_image_only(
    http: Any, pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAI_OF_THE_TEST", "secret")
    text = await run(http, pod, "env; echo; hostname_is=$HOSTNAME; echo $hostname_is")
    assert "FROM_IMAGE=yes" in text
    assert "HAI_OF_THE_TEST" not in text
    assert text.split()[-1] == "a"


async def test_the_command_of_an_image(http: Any, pod: Pod) -> None:
    body = pod("a")
    body["spec"]["containers"][0] = {"name": "main", "image": "says", "args": ["hello"]}
    await http.create(body)
    await phase(http, "Succeeded")
    assert await log(http) == "said hello\n"


@pytest.mark.parametrize(
    ("container", "message"),
    [
        pytest.param({"command": ["/none/such"]}, "No such file", id="no such program"),
        pytest.param({"command": []}, "no command specified", id="no command"),
    ],
)
async def test_what_cannot_be_started(http: Any, pod: Pod, container: Any, message: str) -> None:
    await http.create(pod("a", container=container))
    ended = (await phase(http, "Failed"))["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert message in ended["message"]


async def test_a_volume_that_comes_late(http: Any, pod: Pod) -> None:
    volumes = [{"name": "c", "configMap": {"name": "late"}}]
    container = {"volumeMounts": [{"name": "c", "mountPath": "/late"}]}
    await http.create(pod("a", "sh", "-c", "cat /late/key", volumes=volumes, container=container))
    await http.cluster.until(
        lambda: [e for e in http.cluster.objects("events") if e["reason"] == "FailedMount"]
    )
    assert http.pod()["status"]["phase"] == "Pending"
    await http.create({"metadata": {"name": "late"}, "data": {"key": "value"}}, "configmaps")
    await phase(http, "Succeeded")
    assert await log(http) == "value"


async def test_the_downward_api_and_shared_volumes(http: Any, pod: Pod) -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
    ]
    shared = {"name": "s", "nfs": {"server": "storage", "path": "/data"}}
    volumes = [{"name": "d", "downwardAPI": {"items": items}}, shared]
    mounts = [{"name": "d", "mountPath": "/pod"}, {"name": "s", "mountPath": "/share"}]
    script = "cat /pod/labels /pod/name; cp /pod/name /share/said"
    text = await run(
        http, pod, script, labels={"x": "y"}, volumes=volumes, container={"volumeMounts": mounts}
    )
    assert text == 'x="y"\na'
    more = {"volumes": [shared], "container": {"volumeMounts": mounts[1:]}}
    assert await run(http, pod, "cat /share/said", name="b", **more) == "a"


async def test_nothing_of_a_container_outlives_its_first_process(http: Any, pod: Pod) -> None:
    """Processes that have left its session and orphans are killed, too."""
    script = (
        "import os, time\n"
        "ready, say = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        print(os.getpid(), flush=True); os.write(say, b'x'); time.sleep(1000)\n"
        "    os._exit(0)\n"
        "os.read(ready, 1)\n"
    )
    await http.create(pod("a", sys.executable, "-c", script))
    await phase(http, "Succeeded")
    pid = int(await log(http))
    assert not alive(pid)


async def test_a_first_process_without_a_handler_does_not_hear_sigterm(
    http: Any, pod: Pod, until: Any
) -> None:
    """Python as PID 1 takes the complete grace period, by the clock of the test."""
    await http.create(
        pod("a", sys.executable, "-c", "import time; print('up', flush=True); time.sleep(1000)")
    )
    await phase(http, "Running")
    await said(http, until, "up")
    (pid,) = http.cluster.kubelet.pids("a")
    await http.delete("a", gracePeriodSeconds=10)
    await http.cluster.advance(9)
    assert alive(pid)
    await http.cluster.advance(1)
    await http.cluster.until(lambda: http.pod() is None)
    assert not alive(pid)


async def test_one_with_a_handler_goes_at_once(http: Any, pod: Pod, until: Any) -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "print('up', flush=True); time.sleep(1000)\n"
    )
    await http.create(pod("a", sys.executable, "-c", script))
    await phase(http, "Running")
    await said(http, until, "up")
    await http.delete("a", gracePeriodSeconds=600)
    await http.cluster.until(lambda: http.pod() is None)
    assert http.cluster.kubelet.pods == {}


async def test_two_copies_of_a_pod_after_a_forced_delete_on_a_lost_node(
    http: Any, pod: Pod, until: Any
) -> None:
    await http.create(pod("a", "sh", "-c", FOREVER, nodeName="node0"))
    await phase(http, "Running")
    (first,) = http.cluster.kubelet.pids("a")
    http.cluster.nodes.partition("node0")
    await http.cluster.advance(60)
    code, status = await http.ask("GET", "api/v1/namespaces/default/pods/a/log")
    assert (code, status["status"]) == (500, "Failure")
    await http.delete("a", gracePeriodSeconds=0)
    assert http.pod() is None
    await http.create(pod("a", "sh", "-c", FOREVER, nodeName="node1"))
    await phase(http, "Running")
    (second,) = http.cluster.kubelet.pids("a")
    assert alive(first)
    assert alive(second)
    http.cluster.nodes.heal("node0")
    await http.cluster.advance(2)
    await until(lambda: not alive(first))
    assert alive(second)


async def test_a_loss_of_power_kills(http: Any, pod: Pod, until: Any) -> None:
    await http.create(pod("a", "sh", "-c", FOREVER, nodeName="node0"))
    await phase(http, "Running")
    (pid,) = http.cluster.kubelet.pids("a")
    http.cluster.nodes.power_loss("node0")
    await until(lambda: not alive(pid))
    assert http.pod()["status"]["phase"] == "Running"
    http.cluster.nodes.heal("node0")
    ended = (await phase(http, "Failed"))["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 255


async def test_a_container_out_of_memory_is_killed_and_says_so(http: Any, pod: Pod) -> None:
    await http.create(pod("a", "sh", "-c", FOREVER))
    await phase(http, "Running")
    http.cluster.kubelet.oom_kill("a")
    ended = (await phase(http, "Failed"))["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


async def test_restarts_take_longer_and_longer(http: Any, pod: Pod) -> None:
    await http.create(pod("a", "sh", "-c", "echo up; exit 3", restartPolicy="Always"))

    def restarts() -> int:
        rows = http.pod()["status"].get("containerStatuses") or [{"restartCount": 0}]
        return int(rows[0]["restartCount"])

    def waits() -> bool:
        row = http.pod()["status"]["containerStatuses"][0]
        return bool(row["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff")

    def message() -> str:
        return str(http.pod()["status"]["containerStatuses"][0]["state"]["waiting"]["message"])

    await http.cluster.advance(0)
    for count, seconds in ((1, 10), (2, 20), (3, 40)):
        while restarts() < count or not waits():
            await http.cluster.api.store.next_write()
            await http.cluster.advance(0)
        await http.cluster.advance(seconds - 1)
        assert (restarts(), message().split()[1]) == (count, f"{seconds}s")
        await http.cluster.advance(1)
    assert await log(http, query="?previous=true") == "up\n"


async def test_an_image_that_comes_late(http: Any, pod: Pod) -> None:
    http.cluster.kubelet.images = images = Images(missing=("late",))
    await http.create(pod("a", "true", container={"image": "late"}))

    def reason() -> str:
        rows = http.pod()["status"].get("containerStatuses") or [{}]
        return str(rows[0].get("state", {}).get("waiting", {}).get("reason"))

    await http.cluster.until(lambda: reason() == "ErrImagePull")
    await http.cluster.advance(10)
    await http.cluster.until(lambda: reason() == "ImagePullBackOff")
    object.__setattr__(images, "missing", ())
    await http.cluster.advance(10)
    await phase(http, "Succeeded")
    assert any(e["reason"] == "Failed" for e in http.cluster.objects("events"))


async def test_a_pod_that_is_deleted_before_it_starts(http: Any, pod: Pod) -> None:
    await http.create(pod("a", "true", container={"image": "x.invalid/none"}))
    await http.cluster.until(lambda: http.pod()["status"].get("containerStatuses"))
    await http.delete("a")
    await http.cluster.until(lambda: http.pod() is None)


async def test_closing_leaves_no_process_and_no_descriptor(
    clusters: Any, pod: Pod, tmp_path: Path
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    http = await clusters(kubelet=lambda api: ProcessKubelet(api, tmp_path / "pods"))
    for name in "abc":
        await http.create(pod(name, "sh", "-c", f"sleep 1000 & {FOREVER}"))
        await phase(http, "Running", name=name)
    pids = [pid for name in "abc" for pid in http.cluster.kubelet.pids(name)]
    children = [c.pid for pid in pids for c in psutil.Process(pid).children(recursive=True)]
    await clusters.close()
    assert not [pid for pid in [*pids, *children] if alive(pid)]
    clusters._open.clear()
    assert len(os.listdir("/proc/self/fd")) <= before
