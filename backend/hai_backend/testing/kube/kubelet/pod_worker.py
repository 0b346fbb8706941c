"""Runs one pod. Creates volumes, pulls images, and runs and restarts init containers and containers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from hai_backend.testing.kube.body import dig
from hai_backend.testing.kube.control.events import EventRecorder
from hai_backend.testing.kube.kubelet.config_sources import ConfigSources, MissingError
from hai_backend.testing.kube.kubelet.container_config import (
    Images,
    Mounts,
    command,
    image_variables,
    pod_variables,
)
from hai_backend.testing.kube.kubelet.container_process import ContainerProcess
from hai_backend.testing.kube.kubelet.logs import Output
from hai_backend.testing.kube.kubelet.pod_state import (
    Container,
    LocalPod,
    Running,
    Terminated,
    Waiting,
)
from hai_backend.testing.kube.kubelet.volumes import make_volumes
from hai_backend.testing.kube.timers import Timers


class StoppedError(Exception):
    """The pod must stop, so nothing new may start."""


class InterruptibleWaits:
    """Waits by the cluster's timers. A wait ends when the pod must stop."""

    def __init__(self, timers: Timers, stop: asyncio.Event) -> None:
        self._timers, self._stop = timers, stop

    async def sleep(self, seconds: float) -> None:
        """Wait for a time. Raises StoppedError if the pod must stop."""
        elapsed = asyncio.Event()
        timer = self._timers.call_later(seconds, elapsed.set)
        try:
            await self.until(elapsed)
        finally:
            timer.cancel()

    async def until(self, event: asyncio.Event) -> None:
        """Wait for an event. Raises StoppedError if the pod must stop first."""
        waits = [asyncio.ensure_future(e.wait()) for e in (event, self._stop)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._stop.is_set():
            raise StoppedError


_UNKNOWN = "ContainerStatusUnknown"
_LOST = "The container could not be located when the pod was terminated"
_NOT_STARTED = 128


class PodWorker:
    """Runs one pod. It calls `report` after each change.

    `source_change` returns an event that is set at the next change of a Secret or another source.
    """

    def __init__(
        self,
        local: LocalPod,
        sources: ConfigSources,
        images: Images,
        recorder: EventRecorder,
        timers: Timers,
        home: Path,
        report: Callable[[], None],
        source_change: Callable[[], asyncio.Event],
    ) -> None:
        self.local, self._sources, self._images = local, sources, images
        self._recorder, self._timers, self._home = recorder, timers, home
        self._report, self._source_change = report, source_change
        self._stop = asyncio.Event()
        self._waits = InterruptibleWaits(timers, self._stop)
        self._volumes: dict[str, Path] = {}
        self.processes: dict[Container, ContainerProcess] = {}
        self.outputs: dict[str, list[Output]] = {}  # by container; the newest is last, at most two
        self.oom_killed: set[Container] = set()

    async def run(self) -> None:
        """Run the pod until all containers have ended and none will restart."""
        local = self.local
        try:
            await self._mount()
            local.ip = "127.0.0.1"
            self._report()
            for init in local.init_containers:
                await self._run_container(init)
                if not isinstance(init.state, Terminated) or init.state.code != 0:
                    return
            errors = await asyncio.gather(
                *map(self._run_container, local.main_containers), return_exceptions=True
            )
            for error in filter(None, errors):  # after all containers have ended
                raise error
        except StoppedError:
            self._mark_unstarted_lost()
        finally:
            self._report()

    def stop(self) -> None:
        """Terminate all containers, and start nothing new. A second call has no effect."""
        if self._stop.is_set():
            return
        self._stop.set()
        for process in self.processes.values():
            process.terminate()

    def kill(self) -> None:
        for process in list(self.processes.values()):
            process.kill()

    async def _mount(self) -> None:
        spec, shared = self.local.pod.body["spec"], self._home.parent / "shared"
        while True:
            source_change = self._source_change()
            try:
                self._volumes = make_volumes(spec, self._home, shared, self._sources)
                return
            except MissingError as error:
                message = f"MountVolume.SetUp failed: {error}"
                self._recorder.warning(self.local.pod, "FailedMount", message, "kubelet")
                await self._waits.until(source_change)

    async def _run_container(self, container: Container) -> None:
        """Run a container, and restart it according to the pod's policy."""
        while True:
            await self._pull(container)
            await self._run_once(container)
            if not self.local.will_restart(container) or self._stop.is_set():
                return
            wait = container.backoff()
            if wait and isinstance(container.state, Terminated):
                container.previous = container.state
                message = f"back-off {wait:g}s restarting failed container={container.name}"
                container.state = Waiting("CrashLoopBackOff", message)
                self._report()
                self._recorder.warning(self.local.pod, "BackOff", message, "kubelet")
            await self._waits.sleep(wait)

    async def _pull(self, container: Container) -> None:
        """Wait until the image can be pulled, and report each failed try."""
        image, wait = container.spec["image"], 10.0
        if container.previous is None and self._images.pull_seconds:
            await self._waits.sleep(self._images.pull_seconds)
        while not self._images.can_be_pulled(image):
            if container.spec["imagePullPolicy"] == "Never":
                message = f'Container image "{image}" is not present with pull policy of Never'
                await self._wait_as(container, "ErrImageNeverPull", message, 300.0)
                continue
            message = f'failed to pull and unpack image "{image}": not found'
            backoff = f'Back-off pulling image "{image}"'
            self._warn(f'Failed to pull image "{image}": {message}')
            self._warn("Error: ErrImagePull")
            await self._wait_as(container, "ErrImagePull", message, min(wait, 10.0))
            self._warn("Error: ImagePullBackOff")
            backoff_message = f"{backoff}: ErrImagePull: {message}"
            await self._wait_as(container, "ImagePullBackOff", backoff_message, wait)
            wait = min(wait * 2, 300.0)

    async def _run_once(self, container: Container) -> None:
        """Run a container until it terminates, and report its states."""
        process = await self._start(container)
        if process is None:
            return
        self.processes[container] = process
        self.outputs[container.name] = [*self.outputs.get(container.name, [])[-1:], process.output]
        container.start(self._timers.now())
        self._report()
        code = await asyncio.shield(process.exited)  # so that a cancelled worker does not cancel it
        del self.processes[container]
        reason = "OOMKilled" if container in self.oom_killed else ""
        self.oom_killed.discard(container)
        container.end(code, self._timers.now(), reason)
        self._report()

    async def _start(self, container: Container) -> ContainerProcess | None:
        """Start the process of a container, after the objects that it needs exist. Return None if it fails."""
        while True:
            source_change = self._source_change()
            if self._stop.is_set():
                raise StoppedError
            try:
                return self._start_process(container)
            except MissingError as error:
                container.state = Waiting("CreateContainerConfigError", str(error))
                self._report()
                await self._waits.until(source_change)
            except OSError as error:
                container.state = Running(self._timers.now())
                container.end(_NOT_STARTED, self._timers.now(), "StartError", str(error))
                self._report()
                return None

    def _start_process(self, container: Container) -> ContainerProcess:
        """Start the process of a container. Raises MissingError or OSError."""
        spec = container.spec
        mounts = Mounts(spec, self._volumes)
        mounts.create_subpaths()
        host = dig(self.local.pod.body, "spec.hostname", self.local.pod.name)
        base = image_variables(self._images.variables, host)
        own = pod_variables(spec, self._sources, base)
        argv = command(spec, self._images.command(spec["image"]), base | own, mounts)
        if not argv:
            raise OSError("no command specified")
        env = base | {name: mounts.replace_paths(value) for name, value in own.items()}
        cwd = self._working_directory(spec.get("workingDir", ""), mounts)
        return ContainerProcess(argv, cwd, env, container.id, self._timers)

    def _working_directory(self, requested: str, mounts: Mounts) -> Path:
        """Return the working directory. It is created if it is below a mount, but not elsewhere on this machine."""
        path = Path(mounts.replace_paths(requested)) if requested else self._home / "root"
        if str(path) != requested:
            path.mkdir(parents=True, exist_ok=True)
        return path

    def _warn(self, message: str) -> None:
        self._recorder.warning(self.local.pod, "Failed", message, "kubelet")

    async def _wait_as(
        self, container: Container, reason: str, message: str, seconds: float
    ) -> None:
        container.state = Waiting(reason, message)
        self._report()
        await self._waits.sleep(seconds)

    def _mark_unstarted_lost(self) -> None:
        for container in self.local.main_containers:
            if isinstance(container.state, Waiting):
                container.end(137, self._timers.now(), _UNKNOWN, _LOST)
