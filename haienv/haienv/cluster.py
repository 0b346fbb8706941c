"""Builds environments on the cluster or from the cluster, and asks the server which tasks use an environment."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from haienv.digests import hash_file
from haienv.errors import EnvError, NotFound, Refused
from haienv.names import SYSTEM, parse_reference
from haienv.store.layout import Home
from haienv.store.records import EnvMetadata, to_toml
from haienv.store.registry import Environment
from haienv.store.requirements_lock import Lock, Pin, parse_lock

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.environment_pb2 import Environment as Remote
    from hai.v1.environment_service_pb2 import EnvironmentDescription

Result = TypeVar("Result")
LogCallback = Callable[[str], None]
_LAST_LINES = 500


class ServerError(EnvError):
    """An error of the server or of the connection, with its code and reason."""

    def __init__(self, code: int, reason: str, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.code = code
        self.reason = reason


def call_server(call: Callable[[Client], Awaitable[Result]]) -> Result:
    """Connect to the server of the current profile, and return what `call` returns."""
    from hai.client import errors
    from hai.client.client import Client
    from hai.client.profile import load

    exit_codes = ((errors.NotFound, 3), (errors.Denied, 4), (errors.Unauthenticated, 4), (errors.Invalid, 2),
                  (errors.UsageError, 2), (errors.Unreachable, 5), (errors.TimedOut, 124))  # fmt: skip

    async def session() -> Result:
        async with Client(load()) as client:
            return await call(client)

    try:
        return asyncio.run(session())
    except errors.HaiError as error:
        code = next((code for kind, code in exit_codes if isinstance(error, kind)), 1)
        raise ServerError(code, error.reason, error.message, error.hint) from error


def tasks_using(environment: Environment) -> list[int]:
    """Return the unfinished tasks that use an environment; empty without a server, or if it has another root."""

    async def query(client: Client) -> list[int]:
        remote = await client.environments.get(environment.name, environment.owner)
        return list(remote.used_by)

    return _query_same_root(environment.root, query, [])


def require_unused(environment: Environment) -> None:
    """Raise Refused if unfinished tasks use an environment: without it, the tasks could not start again."""
    if tasks := tasks_using(environment):
        raise Refused(
            f"{environment} is used by unfinished tasks: {', '.join(map(str, tasks))}",
            "wait for them, stop them, or --force",
        )


def layers_in_use(home: Home) -> frozenset[str]:
    """Return the caller's layers in which programs of tasks run, or which hidden environments of others extend."""

    async def query(client: Client) -> frozenset[str]:
        return frozenset(await client.environments.layers_in_use())

    return _query_same_root(home.root, query, frozenset())


def _query_same_root(
    root: Path, query: Callable[[Client], Awaitable[Result]], default: Result
) -> Result:
    """Query the server about a root. Return `default` without a server, or if the server has another root."""
    from hai.client import errors
    from hai.client.profile import load

    try:
        load()
    except errors.HaiError:
        return default

    async def session(client: Client) -> Result:
        return await query(client) if await client.environments.root() == str(root) else default

    try:
        return call_server(session)
    except ServerError as error:
        is_unreachable = error.code == 5
        if error.code == 3 or (is_unreachable and "HAIENV_HOME" not in os.environ):
            return (
                default  # the server does not know the environment; a private root needs no server
            )
        if is_unreachable:
            error.hint = "it is unknown which environments tasks use; --force continues anyway"
        raise


def push(
    environment: Environment,
    name: str,
    metadata: EnvMetadata,
    wheels: Sequence[Path],
    replace: bool,
    on_line: LogCallback,
) -> Remote:
    """Build the same environment on the cluster from its lock and from the wheels in `wheels` and in local URLs."""
    layer = environment.usable_layer
    lock = parse_lock(environment.lock())
    if lock is None or layer.editable:
        raise Refused(
            f"{environment} cannot be built on the cluster: it has projects in place",
            "install packages instead",
        )
    if layer.sites:
        raise Refused(
            f"{environment} cannot be built on the cluster: "
            f"it extends {layer.sites[0]}, which is not a haienv environment",
            f"`haienv create NAME --no_extend {' '.join(layer.wanted)}` creates one without it",
        )
    portable, local_wheels = make_portable(lock)
    local_wheels |= select_matching_wheels(lock, wheels)
    parents = [(p.name, p.owner, p.lock_hash) for p in layer.parents[:1]]
    remote = build(name, portable, layer.wanted, metadata, parents, local_wheels, replace, on_line)
    if remote.lock_hash != portable.hash:
        raise EnvError(f"the cluster built {remote.name} from another lock: {remote.lock_hash}")
    return remote


def build(
    name: str,
    lock: Lock,
    requirements: Sequence[str],
    metadata: EnvMetadata,
    parents: Sequence[tuple[str, str, str]],
    local_wheels: Mapping[str, Path],
    replace: bool,
    on_line: LogCallback,
) -> Remote:
    """Build a lock on the cluster. Pass lines of the log to `on_line`; if the build fails, raise its reason."""
    from hai.v1.environment_pb2 import Environment as Remote
    from hai.v1.environment_pb2 import EnvironmentVisibility
    from hai.v1.environment_service_pb2 import EnvironmentDescription

    async def build_remote(client: Client) -> Remote:
        description = EnvironmentDescription(
            name=name,
            parent=await _find_parent(client, parents),
            python_version=lock.python,
            lock=lock.text,
            config=to_toml(metadata.config),
            visibility=EnvironmentVisibility.Value(
                f"ENVIRONMENT_VISIBILITY_{metadata.visibility.upper()}"
            ),
            user_group=metadata.group,
            replace=replace,
            wanted=requirements,
            parent_lock_hash=lock.parent,
            local_wheels=local_wheels,
        )
        async for item in client.environments.build(description, local_wheels):
            if isinstance(item, Remote):
                return item
            log_lines.append(item)
            on_line(item)
        raise EnvError("the server ended the build without an answer")

    log_lines: deque[str] = deque(maxlen=_LAST_LINES)
    try:
        return call_server(build_remote)
    except ServerError as error:
        if error.reason == "BUILD_FAILED" and (reason := _last_error(log_lines)):
            error.message = f"{name} was not built: {reason}"
        raise


def _last_error(log_lines: Iterable[str]) -> str:
    """Return the last error of haienv in the log. It has all reasons of uv; the server's error is shorter."""
    _, separator, message = "\n".join(["", *log_lines]).rpartition("\nhaienv: ")
    return message if separator else ""


async def _find_parent(client: Client, parents: Sequence[tuple[str, str, str]]) -> str:
    """Return an environment on the cluster with the lock of the local parent; empty if there is no parent."""
    if not parents:
        return ""
    name, owner, lock_hash = parents[0]
    candidates = [e for e in await client.environments.list() if e.lock_hash == lock_hash]
    if not candidates:
        raise Refused(
            f"the cluster has no environment with the lock of {name}[{owner}] ({lock_hash[:12]})",
            f"push the parent first: haienv push '{name}[{owner}]'",
        )
    caller = (await client.users.whoami()).user.name
    trusted = (owner, caller, SYSTEM)  # a user can write any lock hash into the files
    best = min(
        candidates, key=lambda e: (_trust_rank(e.owner, trusted), e.name != name, e.owner, e.name)
    )
    return f"{best.name}[{best.owner}]"


def _trust_rank(owner: str, trusted: Sequence[str]) -> int:
    return trusted.index(owner) if owner in trusted else len(trusted)


def make_portable(lock: Lock) -> tuple[Lock, dict[str, Path]]:
    """Replace local wheels in a lock by their versions. Return the new lock, and the wheels by hash."""
    local_wheels: dict[str, Path] = {}
    pins = tuple(_make_pin_portable(pin, local_wheels) for pin in lock.pins)
    return Lock(lock.python, pins, lock.parent, lock.sites), local_wheels


def _make_pin_portable(pin: Pin, local_wheels: dict[str, Path]) -> Pin:
    """Replace a local wheel by its version, and add the wheel to `local_wheels`."""
    url = urlsplit(pin.version)
    if url.scheme != "file":
        return pin
    path = Path(unquote(url.path))
    parts = path.name.split("-")
    if path.suffix != ".whl" or len(parts) < 5 or not path.is_file():
        raise Refused(
            f"{pin.name} comes from {path}, which is not a local wheel", "build a wheel of it"
        )
    digest = _hash_wheel(path)
    local_wheels[digest] = path
    return Pin(pin.name, parts[1], f"{pin.name}=={parts[1]} --hash=sha256:{digest}")


def select_matching_wheels(lock: Lock, wheels: Iterable[Path]) -> dict[str, Path]:
    """Return the wheels that belong to a lock, by hash."""
    by_hash = {_hash_wheel(path): path for path in wheels}
    return {digest: path for digest, path in by_hash.items() if digest in lock.text}


def _hash_wheel(path: Path) -> str:
    with path.open("rb") as file:
        return hash_file(file)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The data from which this machine can build an environment of the cluster."""

    description: EnvironmentDescription
    lock: Lock


def list_remote(owner: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the caller's user name on the cluster, and the visible environments of one owner or of all."""

    async def query(client: Client) -> tuple[str, list[dict[str, Any]]]:
        environments = await client.environments.list(owner)
        documents = [_document(each) for each in environments]
        return (await client.users.whoami()).user.name, documents

    return call_server(query)


def _document(environment: Remote) -> dict[str, Any]:
    """Return the same document as for a local environment, without fields that the server does not have."""
    from hai.client.text.formatting import enum_name
    from hai.v1.environment_pb2 import EnvironmentState, EnvironmentVisibility

    return {
        "name": environment.name,
        "owner": environment.owner,
        "state": enum_name(EnvironmentState, environment.state),
        "message": environment.message,
        "path": environment.path,
        "parent": environment.parent,
        "python": environment.python_version,
        "lock_hash": environment.lock_hash,
        "visibility": enum_name(EnvironmentVisibility, environment.visibility).lower(),
        "group": environment.user_group,
        "packages": environment.packages,
        "size_bytes": environment.size_bytes,
        "description": environment.description,
        "deprecated": environment.deprecated,
        "created": environment.create_time.ToDatetime(UTC).isoformat(),
        "updated": environment.update_time.ToDatetime(UTC).isoformat(),
    }


def fetch_recipe(name: str, owner: str) -> Recipe:
    """Fetch the recipe of an environment on the cluster. An empty owner means the caller."""
    description = call_server(lambda client: client.environments.export(name, owner))
    lock = parse_lock(description.lock)
    if lock is None:
        raise NotFound(f"the cluster's {name} has no lock that this version of haienv can read")
    return Recipe(description, lock)


def fetch_lock_chain(name: str, owner: str) -> list[Lock]:
    """Fetch the locks of an environment on the cluster and of its parents, nearest first."""
    locks: list[Lock] = []
    while True:
        recipe = fetch_recipe(name, owner)
        locks.append(recipe.lock)
        if not recipe.description.parent:
            return locks
        parent = parse_reference(recipe.description.parent)
        name, owner = parent.name, parent.owner
