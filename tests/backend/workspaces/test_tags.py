"""Tagged revisions are retained completely, whatever the garbage collection deletes."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata
from hypothesis import given, settings
from hypothesis import strategies as st

from hai.client.errors import Conflict, Invalid, NotFound, Unreachable
from hai.v1.task_pb2 import TaskState
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai_backend.domain.workspace import EntryKind
from hai_backend.workspaces import garbage_collection as garbage
from hai_backend.workspaces import index, tags
from hai_backend.workspaces.files import WorkspaceFiles, make_directories
from hai_backend.workspaces.index import Index
from tests.backend.workspaces.test_crashes import push, read_revision

NAMES = ("a", "b", "c", "d")
TREES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([b"x", b"y", b"z"]), min_size=1)


def changed_digests(index: Index, since: int, number: int) -> dict[str, bytes]:
    """Return the digests of changed paths; empty for removed ones."""
    pages = index.iterate_changes(since, number)
    return {e.path: e.digest if e.kind is not EntryKind.NONE else b"" for p in pages for e in p}


def digests(index: Index, number: int) -> dict[str, bytes]:
    return {entry.path: entry.digest for page in index.iterate_tree(number) for entry in page}


@settings(max_examples=60, deadline=None)
@given(trees=st.lists(TREES, min_size=2, max_size=7), data=st.data())
def test_tagged_and_pinned_revisions_are_retained(trees, data) -> None:
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        make_directories(Path(directory) / "w", 0)
        with closing(WorkspaceFiles(Path(directory) / "w", 0)) as files:
            trees_by_revision: dict[int, Mapping[str, bytes]] = {0: {}}
            for tree in trees:
                newest = max(trees_by_revision)
                trees_by_revision[push(files, tree, trees_by_revision[newest], newest)] = tree
            del trees_by_revision[0]
            tagged = data.draw(st.sets(st.sampled_from(sorted(trees_by_revision))))
            for number in tagged:
                tags.tag(files, f"t{number}", number, force=False)
            pinned = data.draw(st.sets(st.sampled_from(sorted(trees_by_revision))))
            before = data.draw(st.integers(0, len(trees) + 1))
            garbage.collect(files, pinned=pinned, running=(), before=before + 0.5)
            retained = [each.number for each in files.index.list_revisions(limit=99)]
            newest = max(trees_by_revision)
            assert set(retained) == tagged | pinned | {
                n for n in trees_by_revision if n >= min(before, newest)
            }
            assert {number: read_revision(files, number) for number in retained} == {
                number: trees_by_revision[number] for number in retained
            }
            for since, number in itertools.combinations(sorted(retained), 2):
                old, new = digests(files.index, since), digests(files.index, number)
                differing = {p for p in old.keys() | new.keys() if old.get(p) != new.get(p)}
                assert changed_digests(files.index, since, number).items() >= {
                    (path, new.get(path, b"")) for path in differing
                }
            for number in tagged:
                tags.untag(files, f"t{number}")
            garbage.collect(files, pinned=(), running=(), before=1e9)
            assert [each.number for each in files.index.list_revisions(limit=99)] == [newest]
            assert files.index.fetch_rows("SELECT count(*) FROM entries WHERE gone != 0") == [(0,)]
            alive = {digest.hex() for digest in digests(files.index, newest).values()}
            assert set(files.objects.list_names()) <= alive


def test_a_task_on_an_old_revision_retains_only_that_revision(tmp_path) -> None:
    make_directories(tmp_path / "w", 0)
    with closing(WorkspaceFiles(tmp_path / "w", 0)) as files:
        for number in range(4):
            push(files, {"a": b"%d" % number}, {"a": b""} if number else {}, number)
        garbage.collect(files, pinned={1}, running=(), before=1e9)
        assert [each.number for each in files.index.list_revisions(limit=9)] == [4, 1]
        assert read_revision(files, 1) == {"a": b"0"}


async def test_a_revision_has_its_tags(service) -> None:
    pusher, calls = await service.pusher(), service.client.workspaces
    for text in (b"one", b"two", b"three"):
        await pusher.push({"f": text})
    assert (await calls.tag("w", "paper", 1)).tags == ["paper"]
    assert (await calls.tag("w", "baseline", 1)).tags == ["baseline", "paper"]
    assert (await calls.tag("w", "paper", 1)).tags == ["baseline", "paper"]
    (service.files() / "made").write_text("by a program")
    assert (await calls.tag("w", "now")).number == 4
    listed = (await calls.revisions("w")).revisions
    assert {each.number: list(each.tags) for each in listed} == {
        **{4: ["now"], 3: [], 2: []},
        1: ["baseline", "paper"],
    }
    some = (await calls.revisions("w", tagged=True, page_size=1)).revisions
    assert [each.number for each in some] == [4]
    await calls.untag("w", "now")
    assert [r.number for r in (await calls.revisions("w", tagged=True)).revisions] == [1]


async def test_a_tag_is_moved_only_by_force(service) -> None:
    pusher, calls = await service.pusher(), service.client.workspaces
    await pusher.push({"f": b"one"})
    await pusher.push({"f": b"two"})
    await calls.tag("w", "best", 1)
    with pytest.raises(Conflict, match=r"revision 1 is tagged 'best' already.*--force"):
        await calls.tag("w", "best", 2)
    assert (await calls.tag("w", "best", 2, force=True)).number == 2
    assert [r.number for r in (await calls.revisions("w", tagged=True)).revisions] == [2]


async def test_tagging_the_same_revision_again_is_no_error(service) -> None:
    pusher, calls = await service.pusher(), service.client.workspaces
    await pusher.push({"f": b"one"})
    answered = calls._stub.TagRevision

    async def lost(request, **more):
        await answered(request, **more)
        (service.files() / "made").write_text("by a program")
        raise AioRpcError(StatusCode.UNAVAILABLE, Metadata(), Metadata())

    calls._stub.TagRevision = lost
    with pytest.raises(Unreachable):
        await calls.tag("w", "now", force=True)
    assert [r.number for r in (await calls.revisions("w", tagged=True)).revisions] == [1]


@pytest.mark.parametrize(
    ("tag", "revision", "error", "message"),
    [
        pytest.param("12", 1, Invalid, "not digits alone", id="a number"),
        pytest.param("", 1, Invalid, "at most 63", id="nothing"),
        pytest.param("a/b", 1, Invalid, "at most 63", id="a slash"),
        pytest.param("x" * 64, 1, Invalid, "at most 63", id="too long"),
        pytest.param("ok", 7, NotFound, "no revision 7", id="no such revision"),
    ],
)
async def test_invalid_tags_are_refused(service, tag, revision, error, message) -> None:
    pusher = await service.pusher()
    await pusher.push({"f": b"one"})
    with pytest.raises(error, match=message):
        await service.client.workspaces.tag("w", tag, revision)
    assert not (await service.client.workspaces.revisions("w", tagged=True)).revisions


async def test_a_missing_tag_cannot_be_removed(service) -> None:
    await service.pusher()
    with pytest.raises(NotFound, match=r"no revision of workspace w is tagged 'x'; .* lists all"):
        await service.client.workspaces.untag("w", "x")


async def test_an_empty_workspace_cannot_be_tagged(service) -> None:
    await service.pusher()
    with pytest.raises(NotFound, match="no revision 0"):
        await service.client.workspaces.tag("w", "x")


async def test_a_task_submitted_with_a_tag_keeps_its_revision(service) -> None:
    pusher = await service.pusher()
    await pusher.push({"run.py": b"print('one')"})
    await service.client.workspaces.tag("w", "v1")
    await pusher.push({"run.py": b"print('two')"})
    program = ProgramSpec(workspace="haiworkspace://w@v1", entrypoint="run.py")
    spec = TaskSpec(version=2, name="t", spec=program, resource=ResourceSpec(node_count=1))
    created = await service.client.tasks.create(spec)
    assert created.spec.spec.workspace == "haiworkspace://w@1"
    done = await service.client.tasks.wait(created.id, timeout=60)
    assert done.state == TaskState.TASK_STATE_FINISHED
    lines = [line.text async for a in service.client.logs.tail(created.id) for line in a.lines]
    assert lines == ["one"]
    spec.spec.workspace = "haiworkspace://w@v2"
    with pytest.raises(
        Invalid, match=r"of workspace w is tagged 'v2'; existing tags: v1; .*--tagged"
    ):
        await service.client.tasks.create(spec)


def test_tags_of_deleted_revisions_are_deleted(tmp_path) -> None:
    make_directories(tmp_path / "w", 0)
    with closing(WorkspaceFiles(tmp_path / "w", 0)) as files:
        push(files, {"a": b"x"}, {}, 0)
        push(files, {"a": b"y"}, {"a": b"x"}, 1)
        tags.tag(files, "best", 1, force=False)
        with files.index.transaction() as db:
            db.execute("DELETE FROM revisions WHERE number < 2")  # as an older server does
        garbage.collect(files, pinned=(), running=(), before=1e9)
        assert files.index.fetch_rows("SELECT count(*) FROM entries WHERE gone != 0") == [(0,)]
        assert tags.tag(files, "best", 2, force=False).tags == ("best",)


def test_tags_are_looked_up_by_index(tmp_path) -> None:
    make_directories(tmp_path / "w", 0)
    with closing(WorkspaceFiles(tmp_path / "w", 0)) as files:
        for query in (index._REVISION, garbage._OLD_ENTRIES):
            parameters = {"floor": 1, "pinned": "[]"}
            plan = files.index.fetch_rows(f"EXPLAIN QUERY PLAN {query}", parameters)
            assert [row[3] for row in plan if "SCAN tags" in row[3]] == []


def test_the_number_of_tags_is_limited(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tags, "MAX_TAGS", 1)
    make_directories(tmp_path / "w", 0)
    with closing(WorkspaceFiles(tmp_path / "w", 0)) as files:
        number = push(files, {"a": b"x"}, {}, 0)
        tags.tag(files, "one", number, force=False)
        with pytest.raises(Exception, match="1 tags already"):
            tags.tag(files, "two", number, force=False)
        assert tags.tag(files, "one", number, force=False).tags == ("one",)
