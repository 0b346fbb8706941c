"""What no client may do: a path, content, order or count that is not what it says is refused, and touches nothing."""

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


def everything(root: Path) -> dict[str, bytes | str]:
    """Every path below a directory, with what it is."""
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
async def test_no_such_path_is_taken(here, path: str) -> None:
    pusher = await here.pusher()
    good = file("good", DATA)
    with pytest.raises(Invalid) as refused:
        await pusher.send([good, file(path, DATA), removal(path)], {good.digest: DATA})
    assert len(refused.value.violations) == 2
    assert everything(here.files()) == {}
    assert not (here.root / "w/incoming").joinpath(good.digest.hex()).exists()


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
async def test_no_link_leads_out(here, target: str) -> None:
    pusher = await here.pusher()
    with pytest.raises(Invalid):
        await pusher.send([link("a/l", target)], {})
    assert everything(here.files()) == {}


async def test_an_absolute_link_is_kept_and_nothing_is_reached_through_it(here) -> None:
    """Data sets are linked into projects; the link is a name and no way for a push or a pull."""
    pusher = await here.pusher()
    await pusher.send([link("a", "/etc")], {})
    good = file("a/passwd", DATA)
    with pytest.raises(HaiError):
        await pusher.send([good], {good.digest: DATA})
    assert here.files().joinpath("a").readlink() == Path("/etc")


async def test_all_bad_paths_are_told_at_once_and_how_many_more_there_are(here) -> None:
    pusher = await here.pusher()
    with pytest.raises(Invalid) as refused:
        await pusher.send([file(f"../{i}", DATA) for i in range(1000)], {})
    told = refused.value.violations
    assert len(told) > 10
    assert "more" in told[-1].message


BAD = b"x" * 1000


def lying(digest: bytes, size: int, data: bytes, *, packed: bool = False) -> calls.PushTreeRequest:
    told = calls.PushContents(digests=[digest], sizes=[size], data=data, compressed=packed)
    return calls.PushTreeRequest(contents=told)


def bomb(claimed: int) -> bytes:
    """A little that unpacks to a lot, with its size in front or (0) not."""
    packer = zstandard.ZstdCompressor(level=1, write_content_size=bool(claimed))
    return packer.compress(b"\0" * (64 << 20))


GOOD = blake3(DATA).digest()


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([lying(GOOD, 4, b"evil")], id="another content"),
        pytest.param([lying(GOOD, 100, DATA)], id="fewer bytes than told"),
        pytest.param([lying(GOOD, 1, DATA)], id="more bytes than told"),
        pytest.param([lying(GOOD, -1, DATA)], id="a negative size"),
        pytest.param([lying(GOOD, 1 << 60, DATA)], id="a size that no message has"),
        pytest.param([lying(GOOD, 9, b"no zstd", packed=True)], id="what cannot be unpacked"),
        pytest.param([lying(GOOD, 9, bomb(0), packed=True)], id="a bomb without its size"),
        pytest.param([lying(GOOD, 9, bomb(1), packed=True)], id="a bomb with its size"),
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
async def test_a_lying_push_is_refused_and_leaves_nothing(here, messages) -> None:
    pusher = await here.pusher()
    first = begin("w", pusher.token, 0)
    with pytest.raises(Invalid):
        await pusher.say(first, changes([file("f", DATA)]), *messages)
    assert everything(here.files()) == {}
    assert (await here.client.workspaces.get("w")).revision == 0
    await pusher.push({"f": DATA})
    assert everything(here.files()) == {"f": DATA}


async def test_a_commit_without_the_contents_is_refused(here) -> None:
    pusher = await here.pusher()
    with pytest.raises(Conflict) as refused:
        await pusher.say(begin("w", pusher.token, 0), changes([file("f", DATA)]), commit(2))
    assert refused.value.reason == "CONTENTS_MISSING"
    assert everything(here.files()) == {}


async def test_a_content_of_another_size_than_its_entry_is_refused(here) -> None:
    pusher = await here.pusher()
    entry = file("f", DATA)
    entry.size += 1
    with pytest.raises(Invalid):
        await pusher.say(begin("w", pusher.token, 0), changes([entry]), contents(DATA), commit(3))


async def test_what_nobody_asked_for_is_not_stored(here) -> None:
    pusher = await here.pusher()
    await pusher.say(
        begin("w", pusher.token, 0), changes([directory("d")]), contents(BAD), commit(3)
    )
    assert everything(here.root / "w/incoming") == {}


async def test_the_first_message_must_be_begin(here) -> None:
    pusher = await here.pusher()
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
async def test_a_bad_recipe_is_refused(here, chunks) -> None:
    pusher = await here.pusher()
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


async def test_chunks_that_do_not_make_the_file_are_refused_and_forgotten(here) -> None:
    pusher = await here.pusher()
    parts = [bytes([i]) * (1 << 20) for i in range(3)]
    wrong = [parts[1], parts[0], parts[2]]

    def told(chunks: list[bytes]) -> calls.PushTreeRequest:
        made = [pb.Chunk(digest=blake3(c).digest(), size=len(c)) for c in chunks]
        digest = blake3(b"".join(parts)).digest()
        return calls.PushTreeRequest(recipe=calls.FileRecipe(digest=digest, chunks=made, last=True))

    first, big = begin("w", pusher.token, 0), changes([file("big", b"".join(parts))])
    sent = [contents(p) for p in parts]
    with pytest.raises(Conflict) as refused:
        await pusher.say(first, big, told(wrong), *sent, commit(6))
    assert refused.value.reason == "CONTENT_CHANGED"
    await pusher.say(first, big, told(parts), *sent, commit(6))
    assert (here.files() / "big").read_bytes() == b"".join(parts)


async def test_parents_that_are_links_are_never_followed(here, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    pusher = await here.pusher()
    await pusher.push({"d/f": DATA})
    (here.files() / "d/f").unlink()
    (here.files() / "d").rmdir()
    (here.files() / "d").symlink_to(outside)
    with pytest.raises(Conflict) as refused:
        await pusher.push({"d/f": b"new", "d/g": b"new"})
    assert refused.value.reason == "REVISION_CHANGED"
    assert everything(outside) == {}
    assert await pusher.tree() == {}  # the link leads out, so it is none of ours
    await pusher.lease()
    await pusher.push({"d/f": b"new"})
    assert everything(outside) == {}
    assert (here.files() / "d/f").read_bytes() == b"new"
    assert (here.files() / "d.conflict-1").readlink() == outside


async def test_a_link_in_place_of_a_file_is_not_read(here, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"not yours")
    pusher = await here.pusher()
    await pusher.push({"f": DATA})
    (here.files() / "f").unlink()
    (here.files() / "f").symlink_to(secret)
    with pytest.raises(Conflict):
        await pusher.fetch(1, "f")
    os.mkfifo(here.files() / "pipe")
    assert await pusher.tree() == {}


async def test_contents_of_others_can_be_neither_probed_nor_read(here) -> None:
    """Not even one's own other workspace answers whether it has a content."""
    mine = await here.pusher("mine")
    await mine.push({"f": DATA})
    secret = await _user(here, "eve")
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
    other = await here.pusher("other")
    answers = await other.say(
        begin("other", other.token, 0), changes([file("f", DATA)]), contents(DATA), commit(3)
    )
    assert list(answers[0].missing.digests) == [GOOD]


async def _user(here, name: str) -> Profile:
    await here.client.users.create(User(name=name, role=ROLE_USER, active=True))
    token = await here.client.users.create_token(user=name)
    return Profile("test", here.server.profile.server, token.secret)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", ".hidden", "x" * 64, "a b", "ä"],
)
async def test_no_such_workspace_is_made_or_looked_for(here, name: str) -> None:
    with pytest.raises(Invalid):
        await here.client.workspaces.create(name)
    with pytest.raises(NotFound):
        await here.client.workspaces.get(name)
    with pytest.raises((NotFound, Denied)):
        await here.client.workspaces.get("w", user="../../x")


async def test_only_who_holds_the_lease_pushes(here) -> None:
    pusher = await here.pusher()
    with pytest.raises(Conflict) as error:
        await here.client.workspaces.lease("w", "another")
    assert error.value.reason == "LEASE_HELD"
    assert "a test" in error.value.message
    thief = await here.client.workspaces.lease("w", "another", force=True)
    with pytest.raises(Conflict) as lost:
        await pusher.push({"f": DATA})
    assert lost.value.reason == "LEASE_LOST"
    assert (await here.client.workspaces.get("w")).lease.token == ""
    await here.client.workspaces.release("w", thief.token)
    assert (await here.client.workspaces.lease("w", "third")).holder == "third"


async def test_a_push_against_an_older_revision_is_refused(here) -> None:
    pusher = await here.pusher()
    await pusher.push({"f": DATA})
    pusher.base = 0
    with pytest.raises(Conflict) as refused:
        await pusher.push({"f": b"other"})
    assert refused.value.reason == "REVISION_CHANGED"
    assert everything(here.files()) == {"f": DATA}


async def test_a_hundred_thousand_entries_in_one_directory(here_in_memory) -> None:
    here, pusher = here_in_memory, await here_in_memory.pusher()
    entries = [file(f"d/{i:06}", b"") for i in range(100_000)]
    made = await pusher.send(entries, {blake3(b"").digest(): b""})
    assert made.files == 100_000
    assert len(await pusher.tree(since=1)) == 0
    assert len(os.listdir(here.files() / "d")) == 100_000


async def test_an_oversized_message_ends_the_push(here) -> None:
    pusher = await here.pusher()
    data = os.urandom(5 << 20)
    with pytest.raises(HaiError) as refused:
        await pusher.say(begin("w", pusher.token, 0), changes([file("f", data)]), contents(data))
    assert isinstance(refused.value, LimitReached)
    await pusher.push({"f": DATA})


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        pytest.param([file("a", DATA), file("a/b", DATA)], "a", id="below a new file"),
        pytest.param([file("old/f/x", DATA)], "old/f", id="below a file"),
        pytest.param([file("old", DATA)], "old", id="over a full directory"),
    ],
)
async def test_a_tree_that_cannot_be_is_refused(here, entries, told) -> None:
    pusher = await here.pusher()
    await pusher.push({"old/f": b"old"})
    with pytest.raises(Invalid) as refused:
        await pusher.send(entries, {GOOD: DATA})
    assert [v.field for v in refused.value.violations] == [told]
    assert everything(here.files()) == {"old": "directory", "old/f": b"old"}
