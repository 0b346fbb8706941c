"""The life of one pod on its node: volumes, images, init containers in order, containers, restarts, the end."""

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
from hai_backend.testing.kube.kubelet.container_process import Program
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
    """The pod is to end; nothing new is started."""


class InterruptibleWaits:
    """Waits of one pod, by the cluster's timers."""

    def __init__(self, timers: Timers, stop: asyncio.Event) -> None:
        self._timers, self._stop = timers, stop

    async def sleep(self, seconds: float) -> None:
        """Raises StoppedError."""
        over = asyncio.Event()
        timer = self._timers.call_later(seconds, over.set)
        try:
            await self.until(over)
        finally:
            timer.cancel()

    async def until(self, event: asyncio.Event) -> None:
        """Raises StoppedError when the pod is to end first."""
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


class Worker:
    """Runs one pod. `report` publishes it, `supplied` waits for a Secret, ConfigMap or claim to change."""

    def __init__(
        self,
        local: LocalPod,
        supplies: ConfigSources,
        images: Images,
        recorder: EventRecorder,
        timers: Timers,
        home: Path,
        report: Callable[[], None],
        supplied: Callable[[], asyncio.Event],
    ) -> None:
        self.local, self._supplies, self._images = local, supplies, images
        self._recorder, self._timers, self._home = recorder, timers, home
        self._report, self._supplied = report, supplied
        self._stop = asyncio.Event()
        self._patience = InterruptibleWaits(timers, self._stop)
        self._volumes: dict[str, Path] = {}
        self.programs: dict[Container, Program] = {}
        self.outputs: dict[str, list[Output]] = {}  # by container; the newest is last, at most two
        self.oom: set[Container] = set()

    async def run(self) -> None:
        """Until all containers have ended for good, or the pod was stopped and they have ended."""
        local = self.local
        try:
            await self._mount()
            local.ip = "127.0.0.1"
            self._report()
            for init in local.inits:
                await self._keep(init)
                if not isinstance(init.state, Terminated) or init.state.code != 0:
                    return
            kept = await asyncio.gather(*map(self._keep, local.mains), return_exceptions=True)
            for error in filter(None, kept):  # only when all have ended
                raise error
        except StoppedError:
            self._lose_unstarted()
        finally:
            self._report()

    def stop(self) -> None:
        """Ask containers to end; nothing new is started. Asking twice changes nothing."""
        if self._stop.is_set():
            return
        self._stop.set()
        for program in self.programs.values():
            program.terminate()

    def kill(self) -> None:
        for program in list(self.programs.values()):
            program.kill()

    async def _mount(self) -> None:
        spec, shared = self.local.pod.body["spec"], self._home.parent / "shared"
        while True:
            supplied = self._supplied()
            try:
                self._volumes = make_volumes(spec, self._home, shared, self._supplies)
                return
            except MissingError as error:
                message = f"MountVolume.SetUp failed: {error}"
                self._recorder.warning(self.local.pod, "FailedMount", message, "kubelet")
                await self._patience.until(supplied)

    async def _keep(self, container: Container) -> None:
        """Run a container, again and again if its pod says so."""
        while True:
            await self._pull(container)
            await self._once(container)
            if not self.local.restarts(container) or self._stop.is_set():
                return
            wait = container.backoff()
            if wait and isinstance(container.state, Terminated):
                container.last = container.state
                message = f"back-off {wait:g}s restarting failed container={container.name}"
                container.state = Waiting("CrashLoopBackOff", message)
                self._report()
                self._recorder.warning(self.local.pod, "BackOff", message, "kubelet")
            await self._patience.sleep(wait)

    async def _pull(self, container: Container) -> None:
        image, wait = container.spec["image"], 10.0
        if container.last is None and self._images.pull_seconds:
            await self._patience.sleep(self._images.pull_seconds)
        while not self._images.pullable(image):
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
            told = f"{backoff}: ErrImagePull: {message}"
            await self._wait_as(container, "ImagePullBackOff", told, wait)
            wait = min(wait * 2, 300.0)

    async def _once(self, container: Container) -> None:
        program = await self._start(container)
        if program is None:
            return
        self.programs[container] = program
        self.outputs[container.name] = [*self.outputs.get(container.name, [])[-1:], program.output]
        container.again(self._timers.now())
        self._report()
        code = await asyncio.shield(program.exited)  # a worker that is cancelled leaves it be
        del self.programs[container]
        reason = "OOMKilled" if container in self.oom else ""
        self.oom.discard(container)
        container.end(code, self._timers.now(), reason)
        self._report()

    async def _start(self, container: Container) -> Program | None:
        while True:
            supplied = self._supplied()
            if self._stop.is_set():
                raise StoppedError
            try:
                return self._program(container)
            except MissingError as error:
                container.state = Waiting("CreateContainerConfigError", str(error))
                self._report()
                await self._patience.until(supplied)
            except OSError as error:
                container.state = Running(self._timers.now())
                container.end(_NOT_STARTED, self._timers.now(), "StartError", str(error))
                self._report()
                return None

    def _program(self, container: Container) -> Program:
        spec = container.spec
        mounts = Mounts(spec, self._volumes)
        mounts.make()
        host = dig(self.local.pod.body, "spec.hostname", self.local.pod.name)
        fixed = image_variables(self._images.variables, host)
        said = pod_variables(spec, self._supplies, fixed)
        argv = command(spec, self._images.command(spec["image"]), fixed | said, mounts)
        if not argv:
            raise OSError("no command specified")
        env = fixed | {name: mounts.real(value) for name, value in said.items()}
        cwd = self._directory(spec.get("workingDir", ""), mounts)
        return Program(argv, cwd, env, container.id, self._timers)

    def _directory(self, asked: str, mounts: Mounts) -> Path:
        """Where the container starts. Below a mount it is made; of the machine's own nothing is."""
        found = Path(mounts.real(asked)) if asked else self._home / "root"
        if str(found) != asked:
            found.mkdir(parents=True, exist_ok=True)
        return found

    def _warn(self, message: str) -> None:
        self._recorder.warning(self.local.pod, "Failed", message, "kubelet")

    async def _wait_as(
        self, container: Container, reason: str, message: str, seconds: float
    ) -> None:
        container.state = Waiting(reason, message)
        self._report()
        await self._patience.sleep(seconds)

    def _lose_unstarted(self) -> None:
        for container in self.local.mains:
            if isinstance(container.state, Waiting):
                container.end(137, self._timers.now(), _UNKNOWN, _LOST)
