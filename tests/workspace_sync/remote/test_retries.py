"""Tests of reads whose connection breaks: they are repeated from the beginning."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata

from hai.client.connection.transport import Connection
from hai.client.errors import Unreachable
from hai_sync.cli import session_factory
from hai_sync.cli.main import main
from hai_sync.remote import endpoint
from hai_sync.remote.endpoint import Remote
from hai_sync.session.options import SyncOptions

REFUSED, LEAVES = "UNREACHABLE", "NO_LEADER"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "delays", lambda: iter([0.0] * 99))


class Breaking:
    """Makes streams of a connection fail, each after one answer, and then lets them succeed."""

    def __init__(self, connection: Connection, *reasons: str, before: bool = False) -> None:
        self._original, self._before = connection.stream, before
        self.left, self.requests = list(reasons), 0
        connection.stream = self.stream  # type: ignore[method-assign]

    async def stream(self, call: Any, request: Any) -> AsyncIterator[Any]:
        self.requests += 1
        reason = self.left.pop(0) if self.left else None
        if reason and self._before:
            raise Unreachable("it is away", reason=reason)
        async for answer in self._original(call, request):
            yield answer
            if reason:
                raise Unreachable("it is away", reason=reason)


@pytest.mark.parametrize("reason", [REFUSED, LEAVES, "DEPOSED", "STORAGE_BUSY"])
async def test_a_pull_continues_after_a_broken_stream(reason: str, laptop) -> None:
    (laptop.cluster / "a").write_text("1")
    breaking = Breaking(laptop.session.remote.connection, reason, reason, REFUSED)
    assert (await laptop.pull()).in_sync
    assert laptop.read() == {"a": b"1"}
    assert not breaking.left


async def test_a_repeated_read_starts_from_the_beginning(laptop) -> None:
    (laptop.cluster / "a").write_text("1")
    (laptop.cluster / "b").write_text("1")
    remote = laptop.session.remote
    whole = remote.connection.stream

    async def stream(call: Any, request: Any) -> AsyncIterator[Any]:
        async for answer in whole(call, request):
            yield answer
        if (laptop.cluster / "a").exists():
            (laptop.cluster / "a").unlink()
            raise Unreachable("it is away")

    remote.connection.stream = stream
    assert list((await remote.tree({}, 0))[1]) == ["b"]


@pytest.mark.parametrize(
    ("reasons", "requests"),
    [
        pytest.param([REFUSED], 1, id="never met"),
        pytest.param([LEAVES, REFUSED], 3, id="met by its own words"),
        pytest.param([LEAVES, "STORAGE_FAILS"], 2, id="waiting is of no use"),
        pytest.param([LEAVES] * 99, endpoint.MAX_ATTEMPTS, id="not for ever"),
    ],
)
async def test_the_number_of_attempts_is_limited(reasons: list[str], requests: int, laptop) -> None:
    connection = laptop.session.remote.connection
    remote = Remote(connection, laptop.session.remote.name)
    breaking = Breaking(connection, *reasons, before=True)
    if reasons == [LEAVES, REFUSED]:
        await remote.tree({}, 0)
    else:
        with pytest.raises(Unreachable, match="it is away"):
            await remote.tree({}, 0)
    assert breaking.requests == requests


async def test_a_daemon_makes_one_attempt(laptop) -> None:
    (laptop.cluster / "a").write_text("1")
    breaking = Breaking(laptop.session.remote.connection, LEAVES)
    with pytest.raises(Unreachable):
        await laptop.session.sync(SyncOptions(keep_in_memory=True))
    assert breaking.requests == 1


@pytest.mark.parametrize("force", [False, True])
async def test_a_repeated_tag_marks_the_revision_of_the_first_attempt(force: bool, laptop) -> None:
    laptop.write("a")
    await laptop.push()
    remote = laptop.session.remote
    answered, requests = remote.stub.TagRevision, []

    async def lost(request: Any, **more: Any) -> Any:
        answer = await answered(request, **more)
        requests.append(request.revision)
        if len(requests) == 1:
            (laptop.cluster / "b").write_text("by a program")
            raise AioRpcError(StatusCode.UNAVAILABLE, Metadata(), Metadata())
        return answer

    remote.stub.TagRevision = lost
    (laptop.cluster / "c").write_text("by a program")
    assert (await remote.tag("now", 0, force)).number == 2
    assert requests == [2, 2]


@pytest.mark.parametrize(
    "argv", [("ls",), ("cat", "a"), ("download", "a", "--to", "got"), ("pull",)]
)
def test_every_command_continues_after_a_broken_stream(
    argv, profile, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("HAI_SERVER", profile.server)
    monkeypatch.setenv("HAI_TOKEN", profile.token)
    monkeypatch.chdir(tmp_path)
    assert main(["init", f"patience-{argv[0]}", "--json"]) == 0
    (tmp_path / "a").write_text("1\n")
    assert main(["push"]) == 0
    made = Connection

    def connection(*args: Any) -> Connection:
        made_one = made(*args)
        Breaking(made_one, LEAVES, REFUSED)
        return made_one

    monkeypatch.setattr(session_factory, "Connection", connection)
    assert main([*argv, "--json"]) == 0
