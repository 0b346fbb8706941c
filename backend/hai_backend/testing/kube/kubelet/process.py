"""The kubelet that runs pods as real local processes. When it is closed, nothing that it has started is left."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.control.events import EventRecorder
from hai_backend.testing.kube.errors import ApiError
from hai_backend.testing.kube.kubelet.config_sources import ConfigSources
from hai_backend.testing.kube.kubelet.container_config import Images
from hai_backend.testing.kube.kubelet.logs import LogOptions, Output, not_yet
from hai_backend.testing.kube.kubelet.pod_state import LocalPod
from hai_backend.testing.kube.kubelet.pod_worker import Worker
from hai_backend.testing.kube.kubelet.runtime import Runtime
from hai_backend.testing.kube.storage.store import Change, StoredObject
from hai_backend.testing.kube.timers import Timer
from hai_backend.testing.kube.validation.defaults import grace_of


class ProcessKubelet(Runtime):
    """Pods live below `home`, each in a directory of its own that goes with it."""

    def __init__(self, api: Api, home: Path, images: Images | None = None) -> None:
        super().__init__(api)
        self._home = home
        self.images = images or Images()
        self._recorder = EventRecorder(api)
        self._workers: dict[str, Worker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._kills: dict[str, Timer] = {}
        self._supplied = asyncio.Event()
        for plural in ("secrets", "configmaps", "persistentvolumeclaims"):
            api.store.listen(api.resources[plural], self._hear_supply)

    def start(self, pod: StoredObject) -> None:
        local = self.take(pod)
        self.publish(local)
        self._work(local)
        self.watch_deadline(local)

    def stop(self, local: LocalPod) -> None:
        local.stopping = True
        self.publish(local)
        if self._tasks[local.pod.uid].done():
            self._over(local)
        else:
            self._end(local, self.grace(local))

    def expire(self, local: LocalPod) -> None:
        self._end(local, grace_of(local.pod.body))

    def forget(self, local: LocalPod) -> None:
        self.stop(local)

    def crash(self, node: str) -> None:
        for local in self.on(node):
            for container in local.containers:
                container.end(255, self.api.timers.now(), "Unknown")
            self._workers[local.pod.uid].kill()
            self._tasks[local.pod.uid].cancel()

    def revive(self, local: LocalPod) -> None:
        if self._tasks[local.pod.uid].done() and any(local.restarts(c) for c in local.mains):
            self._work(local)
        self.publish(local)

    def settled(self, local: LocalPod) -> bool:
        return self._tasks[local.pod.uid].done()

    def oom_kill(self, name: str, namespace: str = "default", container: str = "") -> None:
        """End a container as if its memory were too little."""
        worker = self._workers[self.find(name, namespace).pod.uid]
        for one, program in list(worker.programs.items()):
            if container in ("", one.name):
                worker.oom.add(one)
                program.kill()

    def pids(self, name: str, namespace: str = "default") -> list[int]:
        """The first processes of a pod's running containers."""
        worker = self._workers[self.find(name, namespace).pod.uid]
        return [program.pid for program in worker.programs.values()]

    def read(self, asked: LogOptions) -> bytes:
        output = self._output(asked)
        return not_yet(asked) if output is None else output.read(asked)

    def follow(self, asked: LogOptions) -> AsyncIterator[bytes]:
        output = self._output(asked)
        return _only(not_yet(asked)) if output is None else output.follow(asked)

    async def close(self) -> None:
        """Kill everything and wait for it."""
        for timer in self._kills.values():
            timer.cancel()
        for local in self.pods.values():
            local.stopping = True
        programs = [p for w in self._workers.values() for p in w.programs.values()]
        for worker in self._workers.values():
            worker.stop()
            worker.kill()
        await asyncio.gather(
            *(p.exited for p in programs), *self._tasks.values(), return_exceptions=True
        )
        await super().close()

    def _end(self, local: LocalPod, grace: float) -> None:
        """SIGTERM now, unless it was sent before; SIGKILL after the grace."""
        worker = self._workers[local.pod.uid]
        worker.stop()
        self._cancel_kill(local)
        self._kills[local.pod.uid] = self.api.timers.call_later(grace, worker.kill)

    def _cancel_kill(self, local: LocalPod) -> None:
        if (timer := self._kills.pop(local.pod.uid, None)) is not None:
            timer.cancel()

    def _work(self, local: LocalPod) -> None:
        home = self._home / local.pod.uid
        worker = Worker(
            *(
                local,
                ConfigSources(self.api, local),
                self.images,
                self._recorder,
                self.api.timers,
                home,
            ),
            report=lambda: self.publish(local),
            supplied=lambda: self._supplied,
        )
        uid = local.pod.uid
        self._workers[uid] = worker
        self._tasks[uid] = asyncio.ensure_future(worker.run())
        self._tasks[uid].add_done_callback(lambda task: self._ended(local, task))

    def _ended(self, local: LocalPod, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.api.store.failures.append(error)
        self._over(local)

    def _over(self, local: LocalPod) -> None:
        """All containers have ended. A pod that was to go, goes."""
        uid = local.pod.uid
        self._cancel_kill(local)
        if not local.stopping or uid not in self.pods or not self.alive(local.node):
            return
        self.finish(local)
        del self._workers[uid], self._tasks[uid]
        shutil.rmtree(self._home / uid, ignore_errors=True)

    def _output(self, asked: LogOptions) -> Output | None:
        """Raises ApiError."""
        self.refuse_silent(asked)
        worker = self._workers.get(asked.pod.uid)
        outputs = worker.outputs.get(asked.container, []) if worker is not None else []
        if asked.previous:
            if len(outputs) < 2:
                which = f'"{asked.container}" in pod "{asked.pod.name}"'
                raise ApiError(400, f"previous terminated container {which} not found")
            return outputs[-2]
        return outputs[-1] if outputs else None

    def _hear_supply(self, change: Change) -> None:
        self._supplied.set()
        self._supplied = asyncio.Event()


async def _only(text: bytes) -> AsyncIterator[bytes]:
    yield text
