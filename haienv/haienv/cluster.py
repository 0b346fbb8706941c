"""Environments on the cluster, through `hai.client`: build them there or here, and query which tasks use them."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from haienv.errors import EnvError, NotFound, Refused
from haienv.names import SYSTEM, parse_reference
from haienv.store.layout import Home
from haienv.store.lock_file import Lock, Pin, parse_lock
from haienv.store.records import EnvMetadata, to_toml
from haienv.store.registry import Environment

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.environment_pb2 import Environment as Remote
    from hai.v1.environment_service_pb2 import EnvironmentDescription

Answer = TypeVar("Answer")
LogCallback = Callable[[str], None]
_LAST_LINES = 500


class ServerError(EnvError):
    """An error of the server or of the connection, with its code and reason."""

    def __init__(self, code: int, reason: str, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.code = code
        self.reason = reason


def call_server(work: Callable[[Client], Awaitable[Answer]]) -> Answer:
    """Run work with a client for the server of the current profile."""
    from hai.client import errors
    from hai.client.client import Client
    from hai.client.profile import load

    codes = ((errors.NotFound, 3), (errors.Denied, 4), (errors.Unauthenticated, 4), (errors.Invalid, 2),
             (errors.UsageError, 2), (errors.Unreachable, 5), (errors.TimedOut, 124))  # fmt: skip

    async def session() -> Answer:
        async with Client(load()) as client:
            return await work(client)

    try:
        return asyncio.run(session())
    except errors.HaiError as error:
        code = next((code for kind, code in codes if isinstance(error, kind)), 1)
        raise ServerError(code, error.reason, error.message, error.hint) from error


def tasks_using(environment: Environment) -> list[int]:
    """Unfinished tasks that use an environment; none without a server, or if the server has another root."""

    async def work(client: Client) -> list[int]:
        found = await client.environments.get(environment.name, environment.owner)
        return list(found.used_by)

    return _query_same_root(environment.root, work, [])


def require_unused(environment: Environment) -> None:
    """Raises Refused if unfinished tasks name an environment: they could not start again."""
    if tasks := tasks_using(environment):
        raise Refused(
            f"{environment} is used by unfinished tasks: {', '.join(map(str, tasks))}",
            "wait for them, stop them, or --force",
        )


def layers_in_use(home: Home) -> frozenset[str]:
    """The caller's layers that programs of tasks run in, or that hidden environments of other users extend."""

    async def work(client: Client) -> frozenset[str]:
        return frozenset(await client.environments.layers_in_use())

    return _query_same_root(home.root, work, frozenset())


def _query_same_root(
    root: Path, work: Callable[[Client], Awaitable[Answer]], default: Answer
) -> Answer:
    """Query the server about a root; `default` without a server, or if the server has another root."""
    from hai.client import errors
    from hai.client.profile import load

    try:
        load()
    except errors.HaiError:
        return default

    async def session(client: Client) -> Answer:
        return await work(client) if await client.environments.root() == str(root) else default

    try:
        return call_server(session)
    except ServerError as error:
        is_private_root = error.code == 5 and "HAIENV_HOME" not in os.environ
        if error.code == 3 or is_private_root:
            return default
        if error.code == 5:
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
    """Build the same environment on the cluster. Sends the lock and local wheels of its layer, not its files."""
    layer = environment.usable
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
    portable, local = portable_lock(lock)
    local |= matching_wheels(lock, wheels)
    parents = [(p.name, p.owner, p.lock_hash) for p in layer.parents[:1]]
    remote = build(name, portable, layer.wanted, metadata, parents, local, replace, on_line)
    if remote.lock_hash != portable.hash:
        raise EnvError(f"the cluster built {remote.name} from another lock: {remote.lock_hash}")
    return remote


def build(
    name: str,
    lock: Lock,
    requirements: Sequence[str],
    metadata: EnvMetadata,
    parents: Sequence[tuple[str, str, str]],
    local: Mapping[str, Path],
    replace: bool,
    on_line: LogCallback,
) -> Remote:
    """Build a lock on the cluster. Lines of the log go to `on_line`; errors contain the reason from the log."""
    from hai.v1.environment_pb2 import Environment as Remote
    from hai.v1.environment_pb2 import EnvironmentVisibility
    from hai.v1.environment_service_pb2 import EnvironmentDescription

    async def work(client: Client) -> Remote:
        description = EnvironmentDescription(
            name=name,
            parent=await _parent(client, parents),
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
            local_wheels=local,
        )
        async for answer in client.environments.build(description, local):
            if isinstance(answer, Remote):
                return answer
            log_lines.append(answer)
            on_line(answer)
        raise EnvError("the server ended the build without an answer")

    log_lines: deque[str] = deque(maxlen=_LAST_LINES)
    try:
        return call_server(work)
    except ServerError as error:
        if error.reason == "BUILD_FAILED" and (why := _last_error(log_lines)):
            error.message = f"{name} was not built: {why}"
        raise


def _last_error(log_lines: Iterable[str]) -> str:
    """The last error of haienv in the log: it has all reasons of uv, which the server's short error omits."""
    _, found, why = "\n".join(["", *log_lines]).rpartition("\nhaienv: ")
    return why if found else ""


async def _parent(client: Client, parents: Sequence[tuple[str, str, str]]) -> str:
    """An environment on the cluster with the same lock as the local parent."""
    if not parents:
        return ""
    name, owner, lock_hash = parents[0]
    candidates = [e for e in await client.environments.list() if e.lock_hash == lock_hash]
    if not candidates:
        raise Refused(
            f"the cluster has no environment with the lock of {name}[{owner}] ({lock_hash[:12]})",
            f"push the parent first: haienv push '{name}[{owner}]'",
        )
    trusted = (
        owner,
        (await client.users.whoami()).user.name,
        SYSTEM,
    )  # owners could claim any lock
    best = min(candidates, key=lambda e: (_rank(e.owner, trusted), e.name != name, e.owner, e.name))
    return f"{best.name}[{best.owner}]"


def _rank(owner: str, trusted: Sequence[str]) -> int:
    return trusted.index(owner) if owner in trusted else len(trusted)


def portable_lock(lock: Lock) -> tuple[Lock, dict[str, Path]]:
    """Replace local wheels in a lock by versions; returns the lock, and these wheels by hash."""
    local: dict[str, Path] = {}
    pins = tuple(_portable(pin, local) for pin in lock.pins)
    return Lock(lock.python, pins, lock.parent, lock.sites), local


def _portable(pin: Pin, local: dict[str, Path]) -> Pin:
    url = urlsplit(pin.version)
    if url.scheme != "file":
        return pin
    path = Path(unquote(url.path))
    parts = path.name.split("-")
    if path.suffix != ".whl" or len(parts) < 5 or not path.is_file():
        raise Refused(
            f"{pin.name} comes from {path}, which is not a local wheel", "build a wheel of it"
        )
    digest = sha256_of(path)
    local[digest] = path
    return Pin(pin.name, parts[1], f"{pin.name}=={parts[1]} --hash=sha256:{digest}")


def matching_wheels(lock: Lock, wheels: Iterable[Path]) -> dict[str, Path]:
    """The wheels that belong to a lock, by hash."""
    found = {sha256_of(path): path for path in wheels}
    return {digest: path for digest, path in found.items() if digest in lock.text}


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is needed to build an environment of the cluster here."""

    description: EnvironmentDescription
    lock: Lock


def list_remote(owner: str) -> tuple[str, list[dict[str, Any]]]:
    """The caller's user name on the cluster, and the visible environments (of one owner)."""

    async def work(client: Client) -> tuple[str, list[dict[str, Any]]]:
        found = await client.environments.list(owner)
        return (await client.users.whoami()).user.name, [_as_dict(each) for each in found]

    return call_server(work)


def _as_dict(found: Remote) -> dict[str, Any]:
    """The document of a local environment, without fields that the server does not have."""
    from hai.client.text.formatting import enum_name
    from hai.v1.environment_pb2 import EnvironmentState, EnvironmentVisibility

    return {
        "name": found.name,
        "owner": found.owner,
        "state": enum_name(EnvironmentState, found.state),
        "message": found.message,
        "path": found.path,
        "parent": found.parent,
        "python": found.python_version,
        "lock_hash": found.lock_hash,
        "visibility": enum_name(EnvironmentVisibility, found.visibility).lower(),
        "group": found.user_group,
        "packages": found.packages,
        "size_bytes": found.size_bytes,
        "description": found.description,
        "deprecated": found.deprecated,
        "created": found.create_time.ToDatetime(UTC).isoformat(),
        "updated": found.update_time.ToDatetime(UTC).isoformat(),
    }


def fetch_recipe(name: str, owner: str) -> Recipe:
    """The recipe of an environment on the cluster; the default owner is the caller."""
    description = call_server(lambda client: client.environments.export(name, owner))
    lock = parse_lock(description.lock)
    if lock is None:
        raise NotFound(f"the cluster's {name} has no lock that this version of haienv can read")
    return Recipe(description, lock)


def locks_of_chain(name: str, owner: str) -> list[Lock]:
    """Locks of an environment on the cluster and of its parents, nearest first."""
    found: list[Lock] = []
    while name:
        fetched = fetch_recipe(name, owner)
        found.append(fetched.lock)
        next_parent = (
            parse_reference(fetched.description.parent) if fetched.description.parent else None
        )
        name, owner = (next_parent.name, next_parent.owner) if next_parent else ("", "")
    return found
