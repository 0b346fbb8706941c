"""A push changes the tree as the client requests, keeps replaced versions, and sends only missing contents."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from blake3 import blake3

from hai.client.client import Client
from hai.client.errors import Conflict, Invalid, LimitReached, NotFound, Unreachable
from hai.v1 import workspace_pb2 as pb
from hai.v1 import workspace_service_pb2 as calls
from hai.v1.user_pb2 import ROLE_USER, User
from tests.small_disk import small_disk
from tests.support.servers import running_server
from tests.support.workspaces import (
    MTIME_NS,
    Pusher,
    begin,
    changes,
    commit,
    contents,
    directory,
    file,
    link,
    removal,
)


async def test_a_push_creates_files_directories_links_and_modes(service) -> None:
    pusher = await service.pusher()
    program = file("bin/run", b"#!/bin/sh\n", executable=True)
    made = await pusher.send(
        [program, link("bin/again", "run"), directory("empty/inner"), file("e", b"")],
        {program.digest: b"#!/bin/sh\n", blake3(b"").digest(): b""},
    )
    assert (made.number, made.changed, made.files, made.size_bytes) == (1, 6, 2, 10)
    root = service.files()
    assert (root / "bin/again").readlink() == Path("run")
    assert (root / "empty/inner").is_dir()
    found = (root / "bin/run").stat()
    assert found.st_mode & 0o777 == 0o755
    assert found.st_mtime_ns == MTIME_NS
    assert (root / "e").stat().st_mode & 0o777 == 0o644
    assert list(await pusher.tree()) == ["bin", "e", "empty", "bin/again", "bin/run", "empty/inner"]


async def test_a_push_without_changes_creates_no_revision(service) -> None:
    pusher = await service.pusher()
    await pusher.push({"f": b"x"})
    again = file("f", b"x")
    again.mtime_ns += 1_000_000_000
    assert (await pusher.send([again, removal("never"), directory("d")], {})).number == 2
    assert (await pusher.send([again, directory("d")], {})).number == 2


async def test_a_mode_or_kind_alone_is_a_change(service) -> None:
    pusher = await service.pusher()
    await pusher.push({"f": b"x", "g": b"y"})
    pushed = await pusher.send([file("f", b"x", executable=True), link("g", "f")], {})
    assert pushed.changed == 2
    assert os.access(service.files() / "f", os.X_OK)
    assert (service.files() / "g").is_symlink()
    assert await pusher.fetch(1, "f", "g") == [b"x", b"y"]


async def test_a_removed_directory_stays_if_it_has_other_files(service) -> None:
    pusher = await service.pusher()
    await pusher.push({"a/b/x": b"x", "a/b/y": b"y", "c/z": b"z"})
    await pusher.send(
        [removal("a"), removal("a/b"), removal("a/b/x"), removal("c"), removal("c/z")], {}
    )
    assert list(await pusher.tree()) == ["a", "a/b", "a/b/y"]
    assert not (service.files() / "c").exists()


async def test_one_content_may_belong_to_many_paths(service) -> None:
    pusher = await service.pusher()
    await pusher.push({f"d{i}/f": b"the same" for i in range(5)})
    assert pusher.sent_bytes == len(b"the same")
    (service.files() / "d0/f").write_bytes(b"changed in place")
    assert (service.files() / "d1/f").read_bytes() == b"the same"


async def test_a_moved_file_is_not_sent_again(service) -> None:
    pusher = await service.pusher()
    data = os.urandom(100_000)
    await pusher.push({"old": data})
    pusher.sent_bytes = 0
    await pusher.send([file("new", data), removal("old")], {})
    assert pusher.sent_bytes == 0
    assert (service.files() / "new").read_bytes() == data


async def test_removing_most_files_must_be_allowed(service) -> None:
    pusher = await service.pusher()
    await pusher.push({f"f{i}": b"x" for i in range(20)})
    removals = [removal(f"f{i}") for i in range(15)]
    with pytest.raises(Conflict) as refused:
        await pusher.send(removals, {})
    assert refused.value.reason == "MANY_REMOVALS"
    assert len(os.listdir(service.files())) == 20
    await pusher.send(removals, {}, allow_many_removals=True)
    assert len(os.listdir(service.files())) == 5


async def test_removed_directories_do_not_count(service) -> None:
    """They count neither as removals nor as remaining files."""
    pusher = await service.pusher()
    chain = ["/".join(["d"] * depth) for depth in range(1, 21)]
    await pusher.push({"f": b"x", f"{chain[-1]}/g": b"x"})
    await pusher.send([removal(path) for path in (f"{chain[-1]}/g", *chain)], {})
    assert os.listdir(service.files()) == ["f"]


async def test_contents_of_an_interrupted_push_are_not_requested_again(service) -> None:
    pusher = await service.pusher()
    entries = [file("a", b"one"), file("b", b"two")]
    with pytest.raises(Invalid):
        await pusher.say(begin("w", pusher.token, 0), changes(entries), contents(b"one"))
    answers = await pusher.say(
        begin("w", pusher.token, 0), changes(entries), contents(b"two"), commit(3)
    )
    assert list(answers[0].missing.digests) == [blake3(b"two").digest()]
    assert answers[-1].revision.number == 1


def cut(data: bytes) -> list[bytes]:
    """Cut data at certain bytes, so that an insertion changes no other piece."""
    first, *rest = data.split(b"\0\0")
    return [first, *(b"\0\0" + piece for piece in rest)]


def large(seed: int) -> bytes:
    draw = random.Random(seed)
    return b"\0\0".join(draw.randbytes(50_000).replace(b"\0", b"\1") for _ in range(60))


def recipe(data: bytes, *, last: bool = True) -> calls.PushTreeRequest:
    chunks = [pb.Chunk(digest=blake3(c).digest(), size=len(c)) for c in cut(data)]
    digest = blake3(data).digest()
    return calls.PushTreeRequest(recipe=calls.FileRecipe(digest=digest, chunks=chunks, last=last))


async def push_large(pusher: Pusher, data: bytes) -> int:
    """Push a large file. Return the number of bytes that were sent."""
    contents_by_digest = {blake3(c).digest(): c for c in cut(data)}
    missing_queue: asyncio.Queue[list[bytes]] = asyncio.Queue()
    sent_bytes = 0

    async def messages() -> AsyncIterator[calls.PushTreeRequest]:
        nonlocal sent_bytes
        yield begin("w", pusher.token, pusher.base)
        yield changes([file("big", data)])
        yield recipe(data)
        sent = [contents(contents_by_digest[digest]) for digest in await missing_queue.get()]
        for message in sent:
            sent_bytes += len(message.contents.data)
            yield message
        yield commit(3 + len(sent))

    async for answer in pusher.client.workspaces.push(messages()):
        if answer.WhichOneof("message") == "missing" and answer.missing.answered == 2:
            missing_queue.put_nowait(list(answer.missing.digests))
        if answer.WhichOneof("message") == "revision":
            pusher.base = answer.revision.number
    return sent_bytes


async def test_only_new_chunks_of_a_large_file_are_sent(service) -> None:
    pusher = await service.pusher()
    data = large(1)
    assert await push_large(pusher, data) == len(data)
    assert (service.files() / "big").read_bytes() == data
    changed = data[:1000] + b"inserted" + data[1000:]
    assert await push_large(pusher, changed) < 200_000
    assert (service.files() / "big").read_bytes() == changed
    assert await pusher.fetch(1, "big") == [data]


async def test_chunks_of_a_file_that_a_program_changed_are_not_used(service) -> None:
    pusher = await service.pusher()
    data = large(1)
    await push_large(pusher, data)
    with (service.files() / "big").open("r+b") as file_object:
        file_object.seek(500_000)
        file_object.write(b"by a program")
    await pusher.tree()
    await pusher.lease()
    changed = data[:1000] + b"inserted" + data[1000:]
    assert await push_large(pusher, changed) == len(changed)
    assert (service.files() / "big").read_bytes() == changed


async def test_files_that_programs_write_become_a_revision_at_the_next_scan(service) -> None:
    pusher = await service.pusher()
    await pusher.push({"a/f": b"x", "gone/g": b"y", "kind": b"z"})
    root = service.files()
    (root / "out").mkdir()
    (root / "out/log").write_bytes(b"by a program")
    (root / "a/f").write_bytes(b"changed")
    (root / "gone/g").unlink()
    (root / "gone").rmdir()
    (root / "kind").unlink()
    (root / "kind").mkdir()
    (root / "l").symlink_to("a/f")
    (root / "out-of-here").symlink_to("/etc")
    found = await pusher.tree(since=1)
    kinds = {path: entry.kind for path, entry in found.items()}
    assert kinds == {"a/f": 1, "gone": 0, "gone/g": 0, "kind": 2, "l": 3, "out": 2, "out/log": 1}
    assert [r.author for r in (await service.client.workspaces.revisions("w")).revisions] == [
        "tasks",
        "a test",
    ]
    assert await pusher.tree(since=2) == {}
    assert await pusher.fetch(2, "out/log", "a/f") == [b"by a program", b"changed"]


async def test_a_push_never_overwrites_newer_files_of_programs(service) -> None:
    pusher = await service.pusher()
    await pusher.push({"f": b"x"})
    (service.files() / "f").write_bytes(b"y")
    (service.files() / "new").write_bytes(b"z")
    for missing_queue in ({"f": b"mine"}, {"new": b"mine"}):
        with pytest.raises(Conflict) as refused:
            await pusher.push(missing_queue)
        assert refused.value.reason == "REVISION_CHANGED"
    assert (service.files() / "f").read_bytes() == b"y"
    assert (service.files() / "new").read_bytes() == b"z"


async def test_a_change_within_one_tick_of_the_clock_is_noticed(service) -> None:
    """The size and the time are the same, only the content differs."""
    pusher = await service.pusher()
    await pusher.push({"f": b"x"})
    path = service.files() / "f"
    path.write_bytes(b"y")
    os.utime(path, ns=(MTIME_NS, MTIME_NS))
    assert list(await pusher.tree(since=1)) == ["f"]


async def test_old_versions_can_be_restored(service) -> None:
    pusher = await service.pusher()
    await pusher.push({"a/f": b"one", "a/g": b"keep", "h": b"h"})
    await pusher.send([file("a/f", b"two"), removal("h"), file("n", b"n")], by_digest(b"two", b"n"))
    made = await service.client.workspaces.restore("w", 1, ["a"], token=pusher.token)
    assert (made.number, made.changed, made.author) == (3, 1, "restored from 1")
    assert (service.files() / "a/f").read_bytes() == b"one"
    assert not (service.files() / "h").exists()
    await service.client.workspaces.restore("w", 1, token=pusher.token)
    assert set(await pusher.tree()) == {"a", "h", "a/f", "a/g"}
    with pytest.raises(Invalid):
        await service.client.workspaces.restore("w", 1, ["nothing"], token=pusher.token)
    with pytest.raises(Conflict):
        await service.client.workspaces.restore("w", 1)


def by_digest(*data: bytes) -> dict[bytes, bytes]:
    return {blake3(each).digest(): each for each in data}


async def test_revisions_are_listed_in_pages(service) -> None:
    pusher = await service.pusher()
    for number in range(1, 4):
        await pusher.push({"f": b"%d" % number})
    listed = service.client.workspaces.revisions
    first = await listed("w", page_size=2)
    last = await listed("w", page_size=2, page_token=first.next_page_token)
    assert [[r.number for r in page.revisions] for page in (first, last)] == [[3, 2], [1]]
    assert not last.next_page_token
    assert len((await listed("w", page_size=5000)).revisions) == 3
    for wrong in ({"page_size": -1}, {"page_token": "x"}):
        with pytest.raises(Invalid):
            await listed("w", **wrong)


async def test_watchers_get_each_revision(service) -> None:
    pusher = await service.pusher()
    watching = service.client.workspaces.watch("w")
    assert not (await anext(watching)).HasField("revision")
    for number in (1, 2):
        await pusher.push({"f": b"%d" % number})
        assert (await anext(watching)).revision.number == number
    await watching.aclose()


async def test_a_file_can_be_fetched_from_an_offset(service) -> None:
    pusher = await service.pusher()
    data = large(2)
    await push_large(pusher, data)
    answers = service.client.workspaces.fetch(
        "w", 1, ["big"], offsets=[len(data) - 5], compressed=True
    )
    assert [a.data async for a in answers] == [data[-5:]]
    with pytest.raises(Invalid):
        _ = [a async for a in service.client.workspaces.fetch("w", 1, ["big"], offsets=[1 << 40])]


async def test_a_repeated_request_creates_one_workspace(service) -> None:
    made = await service.client.workspaces.create("w", request_id="once")
    assert await service.client.workspaces.create("w", request_id="once") == made
    with pytest.raises(Conflict) as failure:
        await service.client.workspaces.create("w", request_id="another")
    assert failure.value.reason == "NAME_TAKEN"
    await service.client.workspaces.delete("w")
    assert list(await service.client.workspaces.list()) == []
    assert not (service.root / "w").exists()


async def test_workspaces_survive_a_restart(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with running_server(home, nodes=1) as server, Client(server.profile) as client:
        pusher = await Pusher(client, "w").create()
        await pusher.push({"f": b"one"})
        await pusher.push({"f": b"two"})
    async with running_server(home, nodes=1) as server, Client(server.profile) as client:
        pusher = Pusher(client, "w")
        assert await pusher.fetch(1, "f") == [b"one"]
        assert (await pusher.lease()).base == 2
        assert (await pusher.push({"f": b"three"})).number == 3


async def test_the_quota_covers_all_workspaces_and_is_checked_before_contents_are_sent(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    async with (
        running_server(home, nodes=1, workspace_bytes=10_000) as server,
        Client(server.profile) as client,
    ):
        a, b = await Pusher(client, "a").create(), await Pusher(client, "b").create()
        await a.push({"f": b"x" * 3500})
        with pytest.raises(LimitReached) as refused:
            await b.push({"f": b"y" * 6600})
        assert refused.value.reason == "QUOTA_EXCEEDED"
        assert b.sent_bytes == 0
        await b.push({"f": b"y" * 2000})
        assert (await client.workspaces.get("b")).quota_bytes == 10_000
        for letter in b"xyz":  # old versions do not prevent new ones
            await a.push({"f": bytes([letter]) * 3500})
        assert (await client.workspaces.get("a")).stored_bytes < 10_000


async def test_concurrent_pushes_share_one_quota(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path / "home", nodes=1, workspace_bytes=10_000) as server,
        Client(server.profile) as client,
    ):
        a, b = await Pusher(client, "a").create(), await Pusher(client, "b").create()
        async with announced(a, {"f": b"x" * 6000}):
            with pytest.raises(LimitReached) as refused:
                await b.push({"f": b"y" * 6000})
            assert "4000 are left" in str(refused.value)
        await b.push({"f": b"y" * 6000})  # the other push was interrupted


async def test_files_can_be_removed_above_the_quota(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with running_server(home, nodes=1) as server, Client(server.profile) as client:
        await (await Pusher(client, "a").create()).push({"f": b"x" * 3500, "g": b""})
    async with (
        running_server(home, nodes=1, workspace_bytes=1000) as server,
        Client(server.profile) as client,
    ):
        a = await Pusher(client, "a").lease()
        await a.push({}, [removal("f")])
        assert sorted(await a.tree()) == ["g"]


@asynccontextmanager
async def announced(pusher: Pusher, files: dict[str, bytes]) -> AsyncIterator[None]:
    """Start a push that announces its changes, and then waits."""
    entries = [file(path, data) for path, data in files.items()]
    waits = asyncio.Event()

    async def messages() -> AsyncIterator[calls.PushTreeRequest]:
        yield begin(pusher.name, pusher.token, pusher.base)
        yield changes(entries)
        await waits.wait()

    answers = pusher.client.workspaces.push(messages())
    try:
        assert (await anext(answers)).missing.answered == 1
        yield
        waits.set()
        with pytest.raises(Invalid):
            await anext(answers)
    finally:
        await answers.aclose()


async def test_a_push_to_a_full_disk_is_refused_and_succeeds_later(tmp_path: Path) -> None:
    """The files that arrived before are not sent again."""
    with small_disk(tmp_path / "disk", 8) as disk:
        async with (
            running_server(tmp_path / "home", nodes=1, shared=str(disk)) as server,
            Client(server.profile) as client,
        ):
            pusher = await Pusher(client, "w").create()
            await pusher.push({"small": b"x"})
            files = {f"f{i}": os.urandom(900_000) for i in range(12)}
            before = pusher.sent_bytes
            with pytest.raises(LimitReached) as refused:
                await pusher.push(files)
            assert (refused.value.reason, pusher.sent_bytes) == ("DISK_FULL", before)
            assert list(await pusher.tree()) == ["small"]
            larger = ["mount", "-o", "remount,size=40m", str(disk)]
            await asyncio.to_thread(subprocess.run, larger, check=True)
            await pusher.push(files)
            assert await pusher.fetch(2, "f11") == [files["f11"]]


async def test_a_missing_tree_is_an_error(service) -> None:
    pusher = await service.pusher()
    await pusher.push({"f": b"x"})
    service.files().rename(service.root / "elsewhere")
    for operation in (pusher.tree, lambda: pusher.push({"g": b"y"})):
        with pytest.raises(Unreachable) as lost:
            await operation()
        assert lost.value.reason == "STORAGE_LOST"
    (service.root / "elsewhere").rename(service.files())
    assert list(await pusher.tree()) == ["f"]
    await pusher.push({"g": b"y"})


async def test_watchers_are_notified_of_the_deletion_of_a_workspace(service) -> None:
    await service.pusher()
    watching = service.client.workspaces.watch("w")
    await anext(watching)
    await service.client.workspaces.delete("w")
    with pytest.raises(NotFound):
        await anext(watching)


async def test_files_belong_to_their_user(service) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    await service.client.users.create(User(name="eve", role=ROLE_USER, active=True, uid=23456))
    secret = (await service.client.users.create_token(user="eve")).secret
    async with Client(replace(service.server.profile, token=secret)) as client:
        pusher = await Pusher(client, "w").create()
        await pusher.send([file("d/f", b"x"), link("l", "d")], {blake3(b"x").digest(): b"x"})
    tree = service.root.parent / "eve/w/files"
    owners = {path.lstat().st_uid for path in (tree, *tree.rglob("*"))}
    assert owners == {23456}
    for ours in ("incoming", "objects"):
        assert (tree.parent / ours).stat().st_mode & 0o777 == 0o700


async def test_a_push_is_audited(service) -> None:
    pusher = await service.pusher()
    await pusher.push({"a": b"x", "b": b"y"})
    rows = (await service.server.app.leader.store.audit()).rows
    audit_rows = [(row.actor, row.method, row.what, row.code) for row in rows]
    assert ("admin", "PushTree", "w revision=1 changed=2 removed=0", "OK") in audit_rows


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
async def test_a_directory_in_place_of_a_file_is_no_storage_error(service, make) -> None:
    pusher = await service.pusher()
    await pusher.push({"f": b"one"})
    (service.files() / "f").unlink()
    make(service.files() / "f")
    with pytest.raises(Conflict) as refused:
        await pusher.push({"f": b"two"})
    assert refused.value.reason == "REVISION_CHANGED"
    with pytest.raises(Conflict) as lost:
        await pusher.fetch(1, "f")
    assert lost.value.reason == "CONTENT_LOST"
