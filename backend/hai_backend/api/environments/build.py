"""Builds an environment from its description, in the name of its owner, and keeps the list true meanwhile."""

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
from hai_backend.api.request.rules import Rules
from hai_backend.api.users.convert import NAME_RULE
from hai_backend.auth.permissions import Identity
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain import environment as env
from hai_backend.domain.accounts.user import User
from hai_backend.domain.catalog.dataset import Visibility
from hai_backend.domain.environment import Environment, EnvironmentName, EnvironmentState
from hai_backend.domain.errors import Conflict, HaiError, NotFound
from hai_backend.environments import parse
from hai_backend.environments.errors import Broken
from hai_backend.environments.haienv import Failed, Haienv
from hai_backend.environments.parse import Config
from hai_backend.environments.wheels import Receiving, Wheels

_AT_ONCE = 4  # builds of this server; more wait
_MINOR = re.compile(r"[0-9]{1,2}\.[0-9]{1,3}")
_HASHES = re.compile(r"sha256:([0-9a-f]{64})")
_MOST_WHEELS = 2000
_LOCK = "lock.txt"


class WheelsGone(NotFound):
    """They went while the build waited; clients send them again."""

    reason = "WHEELS_GONE"


@dataclass(frozen=True, slots=True)
class Order:
    """A checked description; `wheels`: those that no index has, by SHA-256."""

    called: EnvironmentName
    owner: User
    python_version: str
    parent: str
    lock: str
    config: Config
    visibility: Visibility
    user_group: str
    replace: bool
    wheels: tuple[str, ...]


class EnvironmentBuilding:
    """`wheels_kept` hears how many bytes the wheels of users have."""

    def __init__(
        self,
        environments: Environments,
        haienv: Haienv,
        wheels: Wheels,
        wheels_kept: Callable[[int], None],
        clock: Clock,
    ) -> None:
        self._environments = environments
        self._haienv = haienv
        self._wheels = wheels
        self._wheels_kept = wheels_kept
        self._clock = clock
        self._building: set[EnvironmentName] = set()
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def order(self, identity: Identity, asked: pb.EnvironmentDescription) -> Order:
        """What is to be built. Raises Invalid with every violation, NotFound or Conflict."""
        self._haienv.require()
        order = checked(identity, asked)
        if order.parent:
            await self._require_parent(identity, asked)
        known = await self._environments.one(order.called)
        if known is not None and known.state is not EnvironmentState.FAILED and not order.replace:
            raise Conflict(
                f"there is an environment {order.called} already; replace it, or take another name",
                reason="NAME_TAKEN",
            )
        return order

    async def _require_parent(self, identity: Identity, asked: pb.EnvironmentDescription) -> None:
        name, owner = env.parse_reference(asked.parent) or ("", "")
        called = EnvironmentName(owner or identity.name, name)
        parent = await self._environments.find(identity, called)
        if asked.parent_lock_hash not in ("", parent.lock_hash):
            raise Conflict(
                f"{called} here has lock {parent.lock_hash[:12]}, not "
                f"{asked.parent_lock_hash[:12]}: push or upgrade it first",
                reason="ANOTHER_PARENT",
            )

    def missing(self, order: Order) -> list[str]:
        """Wheels that must be sent."""
        return self._wheels.missing(order.wheels)

    def receive(self, order: Order, sha256: str, name: str) -> Receiving:
        """A wheel that begins to come. Raises Invalid for one that nobody asked for."""
        rules = Rules()
        if sha256 not in order.wheels:  # it may have come from another meanwhile
            rules.add("wheel.sha256", f"{sha256[:64]!r} is not among the missing wheels")
        rules.check()
        return self._wheels.receive(sha256, name)

    async def build(self, order: Order) -> AsyncIterator[str | Environment]:
        """Lines of the build, then the environment. Raises Conflict when it fails, NotFound when wheels are gone."""
        if order.called in self._building:
            raise Conflict(f"{order.called} is being built already", reason="BUSY")
        self._building.add(order.called)
        try:
            async with self._places:
                await self._note(order, EnvironmentState.BUILDING, "")
                async for line in self._run(order):
                    yield line
            yield await self._environments.register(_said(order, self._clock.now()))
        except (Failed, HaiError, OSError) as error:
            await self._note(order, EnvironmentState.FAILED, str(error))
            if isinstance(error, WheelsGone):
                raise
            raise Conflict(
                f"{order.called} was not built: {error}", reason="BUILD_FAILED"
            ) from error
        except BaseException:
            await self._note(order, EnvironmentState.FAILED, "who asked for it has left")
            raise
        finally:
            self._building.discard(order.called)

    async def remove(self, owner: User, called: EnvironmentName) -> None:
        """Its files. Raises Conflict when they stay."""
        async with self._haienv.place(owner.uid, {}, ()) as place:
            arguments = ("remove", called.name, "--yes")
            try:
                async for _ in self._haienv.run(owner.name, owner.uid, arguments, place):
                    pass
            except Failed as error:
                raise Conflict(
                    f"{called} was not removed: {error}", reason="NOT_REMOVED"
                ) from error

    async def _run(self, order: Order) -> AsyncIterator[str]:
        self._wheels_kept(await asyncio.to_thread(self._wheels.sweep))
        if missing := self.missing(order):
            raise WheelsGone(f"{len(missing)} wheels are not here; the first is {missing[0]}")
        uid, texts = order.owner.uid, {_LOCK: order.lock}
        wheels = [path for sha256 in order.wheels if (path := self._wheels.path(sha256))]
        await asyncio.to_thread(self._haienv.own, order.owner.name, uid)
        there = await self._environments.has_files(order.called)
        async with self._haienv.place(uid, texts, wheels) as place:
            mark = hashlib.sha256(str(place).encode()).hexdigest()[:8] if there else ""
            async for line in self._haienv.run(
                order.owner.name, uid, creating(order, place, mark), place
            ):
                yield line
            used = bool(self._environments.used_by(order.called))  # now: it was built for minutes
            for words in replacing(order.called.name, mark, used=used) if there else ():
                async for line in self._haienv.run(order.owner.name, uid, words, place):
                    yield line

    async def _note(self, order: Order, state: EnvironmentState, message: str) -> None:
        """Only of what has no files: those tell of themselves."""
        known = await self._environments.one(order.called)
        if known is None or known.state in (EnvironmentState.BUILDING, EnvironmentState.FAILED):
            said = _said(order, self._clock.now())
            await self._environments.note(replace(said, state=state, message=message[:2000]))


def replacing(name: str, mark: str, *, used: bool) -> list[list[str]]:
    """What haienv is told when the new one is whole: only now does the old one lose its name.

    It goes last, so it is there under another whatever ends this half-way; and while tasks use it.
    """
    old = f"{name[:50]}.old-{mark}"
    names = [["rename", name, old], ["rename", _new(name, mark), name]]
    return names if used else [*names, ["remove", old, "--force", "--yes"]]


def _new(name: str, mark: str) -> str:
    return f"{name[:50]}.new-{mark}" if mark else name


def creating(order: Order, place: Path, mark: str) -> list[str]:
    """Each word one argument; what comes from users is never the beginning of one, but for the checked name.

    `mark`: beside one of that name.
    """
    words = [
        "create",
        _new(order.called.name, mark),
        f"--from={place / _LOCK}",
        f"--py={order.python_version}",
    ]
    words += [f"--find-links={place / 'wheels'}", f"--visibility={order.visibility.value.lower()}"]
    words += [f"--extend={order.parent}"] if order.parent else ["--no_extend"]
    words += [f"--group={order.user_group}"] if order.user_group else []
    words += [f"--extra-search-dir={path}" for path in order.config.search_dirs]
    words += [f"--extra-search-bin-dir={path}" for path in order.config.bin_dirs]
    words += [f"--extra-environment={name}={value}" for name, value in order.config.variables]
    return [*words, "--verify", "--yes"]


def checked(identity: Identity, asked: pb.EnvironmentDescription) -> Order:
    """Raises Invalid with every violation."""
    rules = Rules()
    rules.matching("description.name", asked.name, env.NAME, NAME_RULE)
    rules.matching("description.python_version", asked.python_version, _MINOR, "as in 3.11")
    if asked.parent and env.parse_reference(asked.parent) is None:
        rules.add("description.parent", "must be name[owner]")
    rules.text("description.lock", asked.lock, convert.LOCK_CHARS)
    rules.text("description.config", asked.config, convert.CONFIG_CHARS)
    config = _config(asked.config, rules)
    _check_wheels(asked, rules)
    visibility = convert.visibility_from_proto(
        asked.visibility, asked.user_group, "description", rules
    )
    if asked.user_group and asked.user_group not in identity.user.groups:
        rules.add("description.user_group", f"{identity.name} is not in {asked.user_group[:64]!r}")
    rules.check()
    return Order(
        called=EnvironmentName(identity.name, asked.name),
        owner=identity.user,
        python_version=asked.python_version,
        parent=asked.parent,
        lock=asked.lock,
        config=config,
        visibility=visibility,
        user_group=asked.user_group,
        replace=asked.replace,
        wheels=tuple(dict.fromkeys(asked.local_wheels)),
    )


def _config(text: str, rules: Rules) -> Config:
    try:
        return parse.config(text)
    except Broken as error:
        rules.add("description.config", str(error))
        return Config()


def _check_wheels(asked: pb.EnvironmentDescription, rules: Rules) -> None:
    if len(asked.local_wheels) > _MOST_WHEELS:
        rules.add("description.local_wheels", f"names more than {_MOST_WHEELS} wheels")
    known = set(_HASHES.findall(asked.lock))
    for i, sha256 in enumerate(asked.local_wheels[:_MOST_WHEELS]):
        if sha256 not in known:
            rules.add(f"description.local_wheels[{i}]", "is not a hash of the lock")


def _said(order: Order, now: float) -> Environment:
    return Environment(
        owner=order.called.owner,
        name=order.called.name,
        visibility=order.visibility,
        user_group=order.user_group,
        parent=order.parent,
        python_version=order.python_version,
        created_at=now,
        updated_at=now,
    )
