"""A kubelet that runs pods as local processes. `close` kills all processes that it has started."""

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
from hai_backend.testing.kube.kubelet.logs import LogOptions, Output, one_chunk, waiting_log
from hai_backend.testing.kube.kubelet.pod_state import LocalPod
from hai_backend.testing.kube.kubelet.pod_worker import PodWorker
from hai_backend.testing.kube.kubelet.runtime import Runtime
from hai_backend.testing.kube.storage.store import Change, StoredObject
from hai_backend.testing.kube.timers import Timer
from hai_backend.testing.kube.validation.defaults import grace_of


class ProcessKubelet(Runtime):
    """Runs pods as processes. Each pod has a directory below `home`, which is removed with the pod."""

    def __init__(self, api: Api, home: Path, images: Images | None = None) -> None:
        super().__init__(api)
        self._home = home
        self.images = images or Images()
        self._recorder = EventRecorder(api)
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._kills: dict[str, Timer] = {}
        self._source_change = asyncio.Event()
        for plural in ("secrets", "configmaps", "persistentvolumeclaims"):
            api.store.listen(api.resources[plural], self._on_source_change)

    def start(self, pod: StoredObject) -> None:
        local = self.add(pod)
        self.publish(local)
        self._start_worker(local)
        self.watch_deadline(local)

    def stop(self, local: LocalPod) -> None:
        local.stopping = True
        self.publish(local)
        if self._tasks[local.pod.uid].done():
            self._delete_if_stopping(local)
        else:
            self._terminate(local, self.remaining_grace(local))

    def end_at_deadline(self, local: LocalPod) -> None:
        self._terminate(local, grace_of(local.pod.body))

    def end_deleted(self, local: LocalPod) -> None:
        self.stop(local)

    def crash(self, node: str) -> None:
        for local in self.pods_on(node):
            for container in local.containers:
                container.end(255, self.api.timers.now(), "Unknown")
            self._workers[local.pod.uid].kill()
            self._tasks[local.pod.uid].cancel()

    def resume(self, local: LocalPod) -> None:
        if self._tasks[local.pod.uid].done() and any(
            local.will_restart(c) for c in local.main_containers
        ):
            self._start_worker(local)
        self.publish(local)

    def has_ended(self, local: LocalPod) -> bool:
        return self._tasks[local.pod.uid].done()

    def oom_kill(self, name: str, namespace: str = "default", container: str = "") -> None:
        """Kill a container as if it had used too much memory."""
        worker = self._workers[self.find(name, namespace).pod.uid]
        for each, process in list(worker.processes.items()):
            if container in ("", each.name):
                worker.oom_killed.add(each)
                process.kill()

    def pids(self, name: str, namespace: str = "default") -> list[int]:
        """Return the pid of the first process of each running container of a pod."""
        worker = self._workers[self.find(name, namespace).pod.uid]
        return [process.pid for process in worker.processes.values()]

    def read(self, options: LogOptions) -> bytes:
        output = self._output(options)
        return waiting_log(options) if output is None else output.read(options)

    def follow(self, options: LogOptions) -> AsyncIterator[bytes]:
        output = self._output(options)
        return one_chunk(waiting_log(options)) if output is None else output.follow(options)

    async def close(self) -> None:
        """Kill all processes and wait for their end."""
        for timer in self._kills.values():
            timer.cancel()
        for local in self.pods.values():
            local.stopping = True
        processes = [p for w in self._workers.values() for p in w.processes.values()]
        for worker in self._workers.values():
            worker.stop()
            worker.kill()
        await asyncio.gather(
            *(p.exited for p in processes), *self._tasks.values(), return_exceptions=True
        )
        await super().close()

    def _terminate(self, local: LocalPod, grace: float) -> None:
        """Send SIGTERM, unless it was sent before, and SIGKILL after the grace period."""
        worker = self._workers[local.pod.uid]
        worker.stop()
        self._cancel_kill(local)
        self._kills[local.pod.uid] = self.api.timers.call_later(grace, worker.kill)

    def _cancel_kill(self, local: LocalPod) -> None:
        if (timer := self._kills.pop(local.pod.uid, None)) is not None:
            timer.cancel()

    def _start_worker(self, local: LocalPod) -> None:
        home = self._home / local.pod.uid
        worker = PodWorker(
            *(
                local,
                ConfigSources(self.api, local),
                self.images,
                self._recorder,
                self.api.timers,
                home,
            ),
            report=lambda: self.publish(local),
            source_change=lambda: self._source_change,
        )
        uid = local.pod.uid
        self._workers[uid] = worker
        self._tasks[uid] = asyncio.ensure_future(worker.run())
        self._tasks[uid].add_done_callback(lambda task: self._handle_worker_end(local, task))

    def _handle_worker_end(self, local: LocalPod, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.api.store.failures.append(error)
        self._delete_if_stopping(local)

    def _delete_if_stopping(self, local: LocalPod) -> None:
        """Delete a pod whose containers have ended, if it is being stopped and its node is alive."""
        uid = local.pod.uid
        self._cancel_kill(local)
        if not local.stopping or uid not in self.pods or not self.is_alive(local.node):
            return
        self.delete_stopped(local)
        del self._workers[uid], self._tasks[uid]
        shutil.rmtree(self._home / uid, ignore_errors=True)

    def _output(self, options: LogOptions) -> Output | None:
        """Return the requested output of a container; None if it has not started. Raises ApiError."""
        self.check_reachable(options)
        worker = self._workers.get(options.pod.uid)
        outputs = worker.outputs.get(options.container, []) if worker is not None else []
        if options.previous:
            if len(outputs) < 2:
                which = f'"{options.container}" in pod "{options.pod.name}"'
                raise ApiError(400, f"previous terminated container {which} not found")
            return outputs[-2]
        return outputs[-1] if outputs else None

    def _on_source_change(self, change: Change) -> None:
        self._source_change.set()
        self._source_change = asyncio.Event()
