"""Invalid paths, contents, orders and counts of a client are refused, and change nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import zstandard
from blake3 import blake3

from hai.client.client import Client
from hai.client.errors import Conflict, Denied, HaiError, Invalid, LimitReached, NotFound
from hai.client.profile import Profile
from hai.v1 import workspace_pb2 as pb
from hai.v1 import workspace_service_pb2 as calls
from hai.v1.user_pb2 import ROLE_USER, User
from tests.support.workspaces import (
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

DATA = b"some data"


def describe_tree(root: Path) -> dict[str, bytes | str]:
    """Return every path below a directory with its content."""
    found: dict[str, bytes | str] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = path.read_bytes() if path.is_file() else "directory"
    return found


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("", id="empty"),
        pytest.param("/etc/passwd", id="absolute"),
        pytest.param("..", id="the directory above"),
        pytest.param("../x", id="out of the root"),
        pytest.param("a/../../x", id="out of the root, later"),
        pytest.param("a/..", id="back to the root"),
        pytest.param("a/./b", id="a dot"),
        pytest.param("a//b", id="an empty part"),
        pytest.param("a/", id="an empty end"),
        pytest.param("a\0b", id="NUL"),
        pytest.param("x" * 256, id="a part of 256 bytes"),
        pytest.param("/".join(["x" * 200] * 20 + ["y" * 76]), id="4 096 bytes"),
        pytest.param("/".join("x" * 200), id="200 parts"),
        pytest.param("e\u0301", id="not in NFC"),
    ],
)
async def test_invalid_paths_are_refused(service, path: str) -> None:
    pusher = await service.pusher()
    good = file("good", DATA)
    with pytest.raises(Invalid) as refused:
        await pusher.send([good, file(path, DATA), removal(path)], {good.digest: DATA})
    assert len(refused.value.violations) == 2
    assert describe_tree(service.files()) == {}
    assert not (service.root / "w/incoming").joinpath(good.digest.hex()).exists()


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("../../x", id="out of the root"),
        pytest.param("b/../../../x", id="out of the root, later"),
        pytest.param("", id="nowhere"),
        pytest.param("a\0b", id="NUL"),
        pytest.param("x" * 4000, id="longer than a path"),
    ],
)
async def test_links_that_lead_outside_are_refused(service, target: str) -> None:
    pusher = await service.pusher()
    with pytest.raises(Invalid):
        await pusher.send([link("a/l", target)], {})
    assert describe_tree(service.files()) == {}


async def test_an_absolute_link_is_stored_and_never_followed(service) -> None:
    """Users link data sets into projects. Pushes and pulls never follow such a link."""
    pusher = await service.pusher()
    await pusher.send([link("a", "/etc")], {})
    good = file("a/passwd", DATA)
    with pytest.raises(HaiError):
        await pusher.send([good], {good.digest: DATA})
    assert service.files().joinpath("a").readlink() == Path("/etc")


async def test_all_invalid_paths_are_reported_at_once(service) -> None:
    pusher = await service.pusher()
    with pytest.raises(Invalid) as refused:
        await pusher.send([file(f"../{i}", DATA) for i in range(1000)], {})
    violations = refused.value.violations
    assert len(violations) > 10
    assert "more" in violations[-1].message


BAD = b"x" * 1000


def contents_message(
    digest: bytes, size: int, data: bytes, *, packed: bool = False
) -> calls.PushTreeRequest:
    pushed = calls.PushContents(digests=[digest], sizes=[size], data=data, compressed=packed)
    return calls.PushTreeRequest(contents=pushed)


def bomb(claimed: int) -> bytes:
    """Return a small compressed text of 64 MiB, which claims its size unless `claimed` is 0."""
    packer = zstandard.ZstdCompressor(level=1, write_content_size=bool(claimed))
    return packer.compress(b"\0" * (64 << 20))


GOOD = blake3(DATA).digest()


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([contents_message(GOOD, 4, b"evil")], id="another content"),
        pytest.param([contents_message(GOOD, 100, DATA)], id="fewer bytes than claimed"),
        pytest.param([contents_message(GOOD, 1, DATA)], id="more bytes than claimed"),
        pytest.param([contents_message(GOOD, -1, DATA)], id="a negative size"),
        pytest.param([contents_message(GOOD, 1 << 60, DATA)], id="a size that no message has"),
        pytest.param(
            [contents_message(GOOD, 9, b"no zstd", packed=True)],
            id="data that cannot be decompressed",
        ),
        pytest.param(
            [contents_message(GOOD, 9, bomb(0), packed=True)], id="a bomb without its size"
        ),
        pytest.param([contents_message(GOOD, 9, bomb(1), packed=True)], id="a bomb with its size"),
        pytest.param(
            [calls.PushTreeRequest(contents=calls.PushContents(digests=[GOOD], data=DATA))],
            id="no sizes",
        ),
        pytest.param([calls.PushTreeRequest()], id="an empty message"),
        pytest.param([begin("w", "", 0)], id="begin again"),
        pytest.param([contents(DATA), commit(99)], id="a count that is not true"),
        pytest.param([contents(DATA)], id="no commit"),
    ],
)
async def test_an_inconsistent_push_is_refused_and_stores_nothing(service, messages) -> None:
    pusher = await service.pusher()
    first = begin("w", pusher.token, 0)
    with pytest.raises(Invalid):
        await pusher.say(first, changes([file("f", DATA)]), *messages)
    assert describe_tree(service.files()) == {}
    assert (await service.client.workspaces.get("w")).revision == 0
    await pusher.push({"f": DATA})
    assert describe_tree(service.files()) == {"f": DATA}


async def test_a_commit_with_missing_contents_is_refused(service) -> None:
    pusher = await service.pusher()
    with pytest.raises(Conflict) as refused:
        await pusher.say(begin("w", pusher.token, 0), changes([file("f", DATA)]), commit(2))
    assert refused.value.reason == "CONTENTS_MISSING"
    assert describe_tree(service.files()) == {}


async def test_a_content_whose_size_differs_from_its_entry_is_refused(service) -> None:
    pusher = await service.pusher()
    entry = file("f", DATA)
    entry.size += 1
    with pytest.raises(Invalid):
        await pusher.say(begin("w", pusher.token, 0), changes([entry]), contents(DATA), commit(3))


async def test_contents_that_were_not_requested_are_not_stored(service) -> None:
    pusher = await service.pusher()
    await pusher.say(
        begin("w", pusher.token, 0), changes([directory("d")]), contents(BAD), commit(3)
    )
    assert describe_tree(service.root / "w/incoming") == {}


async def test_the_first_message_must_be_begin(service) -> None:
    pusher = await service.pusher()
    with pytest.raises(Invalid):
        await pusher.say(changes([file("f", DATA)]))
    with pytest.raises(Invalid):
        await pusher.say()


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([(b"short", 1 << 20)], id="no digest"),
        pytest.param([(GOOD, 0)], id="an empty chunk"),
        pytest.param([(GOOD, 1 << 30)], id="a chunk that no message holds"),
        pytest.param([(GOOD, 9)], id="another size than the file"),
    ],
)
async def test_an_invalid_recipe_is_refused(service, chunks) -> None:
    pusher = await service.pusher()
    big = b"x" * (3 << 20)
    recipe = calls.FileRecipe(
        digest=blake3(big).digest(),
        chunks=[pb.Chunk(digest=d, size=s) for d, s in chunks],
        last=True,
    )
    with pytest.raises(Invalid) as refused:
        await pusher.say(
            begin("w", pusher.token, 0),
            changes([file("big", big)]),
            calls.PushTreeRequest(recipe=recipe),
        )
    assert refused.value.reason == "BAD_RECIPE"


async def test_chunks_that_do_not_form_the_file_are_refused_and_discarded(service) -> None:
    pusher = await service.pusher()
    parts = [bytes([i]) * (1 << 20) for i in range(3)]
    wrong = [parts[1], parts[0], parts[2]]

    def recipe_message(chunks: list[bytes]) -> calls.PushTreeRequest:
        made = [pb.Chunk(digest=blake3(c).digest(), size=len(c)) for c in chunks]
        digest = blake3(b"".join(parts)).digest()
        return calls.PushTreeRequest(recipe=calls.FileRecipe(digest=digest, chunks=made, last=True))

    first, big = begin("w", pusher.token, 0), changes([file("big", b"".join(parts))])
    sent = [contents(p) for p in parts]
    with pytest.raises(Conflict) as refused:
        await pusher.say(first, big, recipe_message(wrong), *sent, commit(6))
    assert refused.value.reason == "CONTENT_CHANGED"
    await pusher.say(first, big, recipe_message(parts), *sent, commit(6))
    assert (service.files() / "big").read_bytes() == b"".join(parts)


async def test_parents_that_are_links_are_never_followed(service, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    pusher = await service.pusher()
    await pusher.push({"d/f": DATA})
    (service.files() / "d/f").unlink()
    (service.files() / "d").rmdir()
    (service.files() / "d").symlink_to(outside)
    with pytest.raises(Conflict) as refused:
        await pusher.push({"d/f": b"new", "d/g": b"new"})
    assert refused.value.reason == "REVISION_CHANGED"
    assert describe_tree(outside) == {}
    assert await pusher.tree() == {}  # the link leads outside, so no revision contains it
    await pusher.lease()
    await pusher.push({"d/f": b"new"})
    assert describe_tree(outside) == {}
    assert (service.files() / "d/f").read_bytes() == b"new"
    assert (service.files() / "d.conflict-1").readlink() == outside


async def test_a_link_in_place_of_a_file_is_not_read(service, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"not yours")
    pusher = await service.pusher()
    await pusher.push({"f": DATA})
    (service.files() / "f").unlink()
    (service.files() / "f").symlink_to(secret)
    with pytest.raises(Conflict):
        await pusher.fetch(1, "f")
    os.mkfifo(service.files() / "pipe")
    assert await pusher.tree() == {}


async def test_contents_of_other_workspaces_can_be_neither_probed_nor_read(service) -> None:
    """Not even another workspace of the same user reveals whether it has a content."""
    mine = await service.pusher("mine")
    await mine.push({"f": DATA})
    secret = await _user(service, "eve")
    async with Client(secret) as eve:
        theirs = await Pusher(eve, "mine").create()
        answers = await theirs.say(
            begin("mine", theirs.token, 0),
            changes([file("f", DATA)]),
            contents(DATA),
            commit(3),
        )
        assert list(answers[0].missing.digests) == [GOOD]
        with pytest.raises(NotFound):
            await eve.workspaces.get("mine", user="admin")
        with pytest.raises(NotFound):
            _ = [a async for a in eve.workspaces.tree("mine", user="admin")]
        with pytest.raises(NotFound):
            _ = [a async for a in eve.workspaces.fetch("mine", 1, ["f"], user="admin")]
        with pytest.raises(NotFound):
            await eve.workspaces.delete("mine", user="admin")
    other = await service.pusher("other")
    answers = await other.say(
        begin("other", other.token, 0), changes([file("f", DATA)]), contents(DATA), commit(3)
    )
    assert list(answers[0].missing.digests) == [GOOD]


async def _user(service, name: str) -> Profile:
    await service.client.users.create(User(name=name, role=ROLE_USER, active=True))
    token = await service.client.users.create_token(user=name)
    return Profile("test", service.server.profile.server, token.secret)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", ".hidden", "x" * 64, "a b", "ä"],
)
async def test_invalid_names_of_workspaces_are_refused(service, name: str) -> None:
    with pytest.raises(Invalid):
        await service.client.workspaces.create(name)
    with pytest.raises(NotFound):
        await service.client.workspaces.get(name)
    with pytest.raises((NotFound, Denied)):
        await service.client.workspaces.get("w", user="../../x")


async def test_only_the_holder_of_the_lease_can_push(service) -> None:
    pusher = await service.pusher()
    with pytest.raises(Conflict) as error:
        await service.client.workspaces.lease("w", "another")
    assert error.value.reason == "LEASE_HELD"
    assert "a test" in error.value.message
    thief = await service.client.workspaces.lease("w", "another", force=True)
    with pytest.raises(Conflict) as lost:
        await pusher.push({"f": DATA})
    assert lost.value.reason == "LEASE_LOST"
    assert (await service.client.workspaces.get("w")).lease.token == ""
    await service.client.workspaces.release("w", thief.token)
    assert (await service.client.workspaces.lease("w", "third")).holder == "third"


async def test_a_push_against_an_older_revision_is_refused(service) -> None:
    pusher = await service.pusher()
    await pusher.push({"f": DATA})
    pusher.base = 0
    with pytest.raises(Conflict) as refused:
        await pusher.push({"f": b"other"})
    assert refused.value.reason == "REVISION_CHANGED"
    assert describe_tree(service.files()) == {"f": DATA}


async def test_a_hundred_thousand_entries_in_one_directory(service_in_memory) -> None:
    service, pusher = service_in_memory, await service_in_memory.pusher()
    entries = [file(f"d/{i:06}", b"") for i in range(100_000)]
    made = await pusher.send(entries, {blake3(b"").digest(): b""})
    assert made.files == 100_000
    assert len(await pusher.tree(since=1)) == 0
    assert len(os.listdir(service.files() / "d")) == 100_000


async def test_an_oversized_message_ends_the_push(service) -> None:
    pusher = await service.pusher()
    data = os.urandom(5 << 20)
    with pytest.raises(HaiError) as refused:
        await pusher.say(begin("w", pusher.token, 0), changes([file("f", data)]), contents(data))
    assert isinstance(refused.value, LimitReached)
    await pusher.push({"f": DATA})


@pytest.mark.parametrize(
    ("entries", "field"),
    [
        pytest.param([file("a", DATA), file("a/b", DATA)], "a", id="below a new file"),
        pytest.param([file("old/f/x", DATA)], "old/f", id="below a file"),
        pytest.param([file("old", DATA)], "old", id="over a full directory"),
    ],
)
async def test_an_impossible_tree_is_refused(service, entries, field) -> None:
    pusher = await service.pusher()
    await pusher.push({"old/f": b"old"})
    with pytest.raises(Invalid) as refused:
        await pusher.send(entries, {GOOD: DATA})
    assert [v.field for v in refused.value.violations] == [field]
    assert describe_tree(service.files()) == {"old": "directory", "old/f": b"old"}
