"""Builds environments from descriptions, as their owners, and updates the list of environments."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hai.v1 import environment_service_pb2 as pb
from hai_backend.api.environments import convert
from hai_backend.api.environments.environments import Environments
from hai_backend.api.request.field_checks import FieldViolations
from hai_backend.api.users.convert import NAME_RULE
from hai_backend.auth.permissions import Identity
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain import environment as env
from hai_backend.domain.accounts.user import User
from hai_backend.domain.catalog.dataset import Visibility
from hai_backend.domain.environment import Environment, EnvironmentName, EnvironmentState
from hai_backend.domain.errors import Conflict, HaiError, NotFound
from hai_backend.environments import records
from hai_backend.environments.haienv import Haienv, HaienvFailed
from hai_backend.environments.records import BrokenEnvironment, Config
from hai_backend.environments.wheels import Wheels, WheelUpload

_MAX_CONCURRENT = 4  # builds of this server at the same time
_MINOR = re.compile(r"[0-9]{1,2}\.[0-9]{1,3}")
_HASHES = re.compile(r"sha256:([0-9a-f]{64})")
_MAX_WHEELS = 2000
_LOCK = "lock.txt"


class WheelsDeleted(NotFound):
    """Wheels were deleted while the build waited. Clients send them again."""

    reason = "WHEELS_GONE"


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """A validated description. `wheels` are the SHA-256 of the wheels that no index has."""

    full_name: EnvironmentName
    owner: User
    python_version: str
    parent: str
    lock: str
    config: Config
    visibility: Visibility
    user_group: str
    replace: bool
    wheels: tuple[str, ...]


class EnvironmentBuilder:
    """Builds environments. `report_wheel_bytes` is called with the total size of stored wheels."""

    def __init__(
        self,
        environments: Environments,
        haienv: Haienv,
        wheels: Wheels,
        report_wheel_bytes: Callable[[int], None],
        clock: Clock,
    ) -> None:
        self._environments = environments
        self._haienv = haienv
        self._wheels = wheels
        self._report_wheel_bytes = report_wheel_bytes
        self._clock = clock
        self._building: set[EnvironmentName] = set()
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)

    async def prepare(
        self, identity: Identity, description: pb.EnvironmentDescription
    ) -> BuildRequest:
        """Validate a description. Raises Invalid with every violation, NotFound or Conflict."""
        self._haienv.require_program()
        request = request_from_proto(identity, description)
        if request.parent:
            await self._require_parent(identity, description)
        existing = await self._environments.get(request.full_name)
        if (
            existing is not None
            and existing.state is not EnvironmentState.FAILED
            and not request.replace
        ):
            raise Conflict(
                f"environment {request.full_name} already exists; replace it, or choose another name",
                reason="NAME_TAKEN",
            )
        return request

    async def _require_parent(
        self, identity: Identity, description: pb.EnvironmentDescription
    ) -> None:
        name, owner = env.parse_reference(description.parent) or ("", "")
        full_name = EnvironmentName(owner or identity.name, name)
        parent = await self._environments.find(identity, full_name)
        if description.parent_lock_hash not in ("", parent.lock_hash):
            raise Conflict(
                f"{full_name} here has lock {parent.lock_hash[:12]}, not "
                f"{description.parent_lock_hash[:12]}: push or upgrade it first",
                reason="ANOTHER_PARENT",
            )

    def missing(self, request: BuildRequest) -> list[str]:
        """Return the wheels that the client must send."""
        return self._wheels.list_missing(request.wheels)

    def receive(self, request: BuildRequest, sha256: str, name: str) -> WheelUpload:
        """Begin an upload. Raises Invalid for a wheel that was not requested."""
        violations = FieldViolations()
        if sha256 not in request.wheels:  # also true if another client has sent the wheel
            violations.add("wheel.sha256", f"{sha256[:64]!r} is not among the missing wheels")
        violations.raise_if_any()
        return self._wheels.begin_upload(sha256, name)

    async def build(self, request: BuildRequest) -> AsyncIterator[str | Environment]:
        """Yield lines of the build, then the environment. Raises Conflict, or NotFound if wheels were deleted."""
        if request.full_name in self._building:
            raise Conflict(f"{request.full_name} is being built already", reason="BUSY")
        self._building.add(request.full_name)
        try:
            async with self._slots:
                await self._save_state(request, EnvironmentState.BUILDING, "")
                async for line in self._run(request):
                    yield line
            yield await self._environments.register(_environment_of(request, self._clock.now()))
        except (HaienvFailed, HaiError, OSError) as error:
            await self._save_state(request, EnvironmentState.FAILED, str(error))
            if isinstance(error, WheelsDeleted):
                raise
            raise Conflict(
                f"{request.full_name} was not built: {error}", reason="BUILD_FAILED"
            ) from error
        except BaseException:
            await self._save_state(request, EnvironmentState.FAILED, "the client disconnected")
            raise
        finally:
            self._building.discard(request.full_name)

    async def remove(self, owner: User, full_name: EnvironmentName) -> None:
        """Delete the files of an environment. Raises Conflict if that fails."""
        async with self._haienv.build_directory(owner.uid, {}, ()) as build_directory:
            arguments = ("remove", full_name.name, "--yes")
            try:
                async for _ in self._haienv.run(owner.name, owner.uid, arguments, build_directory):
                    pass
            except HaienvFailed as error:
                raise Conflict(
                    f"{full_name} was not removed: {error}", reason="NOT_REMOVED"
                ) from error

    async def _run(self, request: BuildRequest) -> AsyncIterator[str]:
        self._report_wheel_bytes(await asyncio.to_thread(self._wheels.delete_unused))
        if missing := self.missing(request):
            raise WheelsDeleted(f"{len(missing)} wheels are missing; the first is {missing[0]}")
        uid, texts = request.owner.uid, {_LOCK: request.lock}
        wheels = [path for sha256 in request.wheels if (path := self._wheels.find_path(sha256))]
        await asyncio.to_thread(self._haienv.ensure_user_directory, request.owner.name, uid)
        has_files = await self._environments.has_files(request.full_name)
        async with self._haienv.build_directory(uid, texts, wheels) as build_directory:
            suffix = (
                hashlib.sha256(str(build_directory).encode()).hexdigest()[:8] if has_files else ""
            )
            async for line in self._haienv.run(
                request.owner.name,
                uid,
                create_arguments(request, build_directory, suffix),
                build_directory,
            ):
                yield line
            # The build took minutes, so this is checked only now
            is_used = bool(self._environments.used_by(request.full_name))
            for arguments in (
                replace_commands(request.full_name.name, suffix, is_used=is_used)
                if has_files
                else ()
            ):
                async for line in self._haienv.run(
                    request.owner.name, uid, arguments, build_directory
                ):
                    yield line

    async def _save_state(
        self, request: BuildRequest, state: EnvironmentState, message: str
    ) -> None:
        """Save the state of a build, unless the environment has files, from which its state is read."""
        existing = await self._environments.get(request.full_name)
        if existing is None or existing.state in (
            EnvironmentState.BUILDING,
            EnvironmentState.FAILED,
        ):
            environment = _environment_of(request, self._clock.now())
            await self._environments.save(replace(environment, state=state, message=message[:2000]))


def replace_commands(name: str, suffix: str, *, is_used: bool) -> list[list[str]]:
    """Return the commands that replace an environment once the new one is complete.

    The old environment is renamed first and deleted last. It is available under another name while tasks use it, and
    also after an interruption.
    """
    old = f"{name[:50]}.old-{suffix}"
    names = [["rename", name, old], ["rename", _new(name, suffix), name]]
    return names if is_used else [*names, ["remove", old, "--force", "--yes"]]


def _new(name: str, suffix: str) -> str:
    return f"{name[:50]}.new-{suffix}" if suffix else name


def create_arguments(request: BuildRequest, build_directory: Path, suffix: str) -> list[str]:
    """Return the arguments of `haienv create`. No argument begins with text of users, except for the validated name.

    With a suffix, the environment is created beside the existing one of that name.
    """
    arguments = [
        "create",
        _new(request.full_name.name, suffix),
        f"--from={build_directory / _LOCK}",
        f"--py={request.python_version}",
    ]
    arguments += [
        f"--find-links={build_directory / 'wheels'}",
        f"--visibility={request.visibility.value.lower()}",
    ]
    arguments += [f"--extend={request.parent}"] if request.parent else ["--no_extend"]
    arguments += [f"--group={request.user_group}"] if request.user_group else []
    arguments += [f"--extra-search-dir={path}" for path in request.config.search_dirs]
    arguments += [f"--extra-search-bin-dir={path}" for path in request.config.bin_dirs]
    arguments += [f"--extra-environment={name}={value}" for name, value in request.config.variables]
    return [*arguments, "--verify", "--yes"]


def request_from_proto(identity: Identity, description: pb.EnvironmentDescription) -> BuildRequest:
    """Validate a description from a message. Raises Invalid with every violation."""
    violations = FieldViolations()
    violations.check_pattern("description.name", description.name, env.NAME, NAME_RULE)
    violations.check_pattern(
        "description.python_version", description.python_version, _MINOR, "as in 3.11"
    )
    if description.parent and env.parse_reference(description.parent) is None:
        violations.add("description.parent", "must be name[owner]")
    violations.check_text("description.lock", description.lock, convert.LOCK_CHARS)
    violations.check_text("description.config", description.config, convert.CONFIG_CHARS)
    config = _read_config(description.config, violations)
    _check_wheels(description, violations)
    visibility = convert.visibility_from_proto(
        description.visibility, description.user_group, "description", violations
    )
    if description.user_group and description.user_group not in identity.user.groups:
        violations.add(
            "description.user_group", f"{identity.name} is not in {description.user_group[:64]!r}"
        )
    violations.raise_if_any()
    return BuildRequest(
        full_name=EnvironmentName(identity.name, description.name),
        owner=identity.user,
        python_version=description.python_version,
        parent=description.parent,
        lock=description.lock,
        config=config,
        visibility=visibility,
        user_group=description.user_group,
        replace=description.replace,
        wheels=tuple(dict.fromkeys(description.local_wheels)),
    )


def _read_config(text: str, violations: FieldViolations) -> Config:
    try:
        return records.parse_config(text)
    except BrokenEnvironment as error:
        violations.add("description.config", str(error))
        return Config()


def _check_wheels(description: pb.EnvironmentDescription, violations: FieldViolations) -> None:
    if len(description.local_wheels) > _MAX_WHEELS:
        violations.add("description.local_wheels", f"names more than {_MAX_WHEELS} wheels")
    existing = set(_HASHES.findall(description.lock))
    for i, sha256 in enumerate(description.local_wheels[:_MAX_WHEELS]):
        if sha256 not in existing:
            violations.add(f"description.local_wheels[{i}]", "is not a hash of the lock")


def _environment_of(request: BuildRequest, now: float) -> Environment:
    return Environment(
        owner=request.full_name.owner,
        name=request.full_name.name,
        visibility=request.visibility,
        user_group=request.user_group,
        parent=request.parent,
        python_version=request.python_version,
        created_at=now,
        updated_at=now,
    )
