"""Tests that invalid answers of a server are refused, and change nothing locally."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from blake3 import blake3
from google.protobuf.timestamp_pb2 import Timestamp
from grpc import aio

from hai.client.connection.transport import Connection
from hai.client.errors import Conflict, ServerError
from hai.client.profile import Profile
from hai.v1 import workspace_service_pb2 as pb
from hai.v1.workspace_pb2 import Workspace, WorkspaceEntry, WorkspaceLease, WorkspaceRevision
from hai.v1.workspace_service_pb2_grpc import (
    WorkspaceServiceServicer,
    add_WorkspaceServiceServicer_to_server,
)
from hai_sync.cli.session_factory import open_session
from hai_sync.core.reconcile_options import Mode, Rules
from hai_sync.errors import ProtocolViolation
from hai_sync.remote.downloader import Download, fetch_contents
from hai_sync.remote.endpoint import Remote
from hai_sync.session.options import SyncOptions
from hai_sync.workspace_dir import create_workspace

CONTENT = b"hello world"
DIGEST = blake3(CONTENT).digest()


def file(path: str = "a", **more) -> WorkspaceEntry:
    return WorkspaceEntry(path=path, kind=1, **{"size": len(CONTENT), "digest": DIGEST, **more})


def link(path: str, target: str) -> WorkspaceEntry:
    return WorkspaceEntry(path=path, kind=3, target=target)


class LyingServer(WorkspaceServiceServicer):
    """A server whose answers a test sets."""

    def __init__(self) -> None:
        self.entries = [file()]
        self.answers: Callable[[pb.FetchFilesRequest], list[pb.FetchFilesResponse]] = honest_server
        self.pushed: list[pb.PushTreeResponse] = []
        self.breaks = 0

    async def GetWorkspace(self, request, context):
        return Workspace(name="w", revision=1, create_time=Timestamp(seconds=1))

    async def GetTree(self, request, context):
        yield pb.GetTreeResponse(revision=1, entries=self.entries)

    async def ListRevisions(self, request, context):
        return pb.ListRevisionsResponse(revisions=[WorkspaceRevision(number=1)])

    async def LeaseWorkspace(self, request, context):
        return WorkspaceLease(token="t")

    async def FetchFiles(self, request, context):
        for answer in self.answers(request):
            yield answer

    async def PushTree(self, request_iterator, context):
        for answer in self.pushed:
            yield answer


def honest_server(request: pb.FetchFilesRequest) -> list[pb.FetchFilesResponse]:
    return [
        pb.FetchFilesResponse(
            parts=[pb.FilePart(index=i, size=len(CONTENT), last=True)], data=CONTENT
        )
        for i in range(len(request.paths))
    ]


@pytest.fixture
async def lying_server() -> AsyncIterator[tuple[LyingServer, Connection]]:
    """Run a server with invalid answers, and a connection to it."""
    servicer, server = LyingServer(), aio.server()
    add_WorkspaceServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    connection = Connection(Profile("liar", f"127.0.0.1:{port}"))
    yield servicer, connection
    await connection.close()
    await server.stop(None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create a root with one file, and a file outside that must not change."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "mine").write_text("mine")
    (tmp_path / "precious").write_text("precious")
    return root


async def pull(root: Path, connection: Connection, mode: Mode = Mode.PULL) -> None:
    session = open_session(create_workspace(root, "w")[0], connection)
    try:
        await session.sync(SyncOptions(Rules(mode)))
    finally:
        session.index.close()


def is_unchanged(root: Path) -> bool:
    """Return whether there is nothing new in the root and nothing changed outside of it."""
    here = {p.name for p in root.iterdir()} - {".hfai"}
    outside = {p.name for p in root.parent.iterdir()}
    precious = (root.parent / "precious").read_text() == "precious"
    return here == {"mine"} and outside <= {"root", "precious", "data"} and precious


async def test_valid_answers_are_accepted(lying_server, root: Path) -> None:
    await pull(root, lying_server[1])
    assert (root / "a").read_bytes() == CONTENT


TREES = [
    pytest.param([file("../precious")], id="the parent"),
    pytest.param([file("/tmp/x")], id="absolute"),
    pytest.param([file("a/../../x")], id="the parent in between"),
    pytest.param([file("a\0b")], id="NUL"),
    pytest.param([file("")], id="nothing"),
    pytest.param([file("x" * 4096)], id="a name of 4096 bytes"),
    pytest.param([link("l", "/etc"), file("l/x")], id="through a link"),
    pytest.param([link("l", "../precious")], id="a link out of it"),
    pytest.param([link("l", "")], id="a link to nothing"),
    pytest.param([file("d/x")], id="a file without its directory"),
    pytest.param([file("a"), file("a/b")], id="a file in a file"),
    pytest.param([file("a", digest=b"short")], id="a digest that is none"),
    pytest.param([file("a", size=-1)], id="a negative size"),
    pytest.param([WorkspaceEntry(path="a", kind=9)], id="a kind that is none"),
    pytest.param([file("e\u0301")], id="a decomposed name"),
]


async def test_private_paths_of_the_server_are_ignored(lying_server, root: Path) -> None:
    private = [WorkspaceEntry(path=".hfai", kind=2), file(".hfai/workspace.yml"), file(".hfai/new")]
    lying_server[0].entries = [*private, file("a")]
    await pull(root, lying_server[1])
    assert (root / "a").read_bytes() == CONTENT
    assert b"\nname: " in (root / ".hfai/workspace.yml").read_bytes()
    assert not (root / ".hfai/new").exists()


@pytest.mark.parametrize("entries", TREES)
async def test_invalid_trees_of_the_server_are_refused(entries, lying_server, root: Path) -> None:
    lying_server[0].entries = entries
    with pytest.raises(ProtocolViolation):
        await pull(root, lying_server[1])
    assert is_unchanged(root)


def part(data: bytes, index: int = 0, offset: int = 0, size: int | None = None, last: bool = True):
    size = len(data) if size is None else size
    recipe_parts = [pb.FilePart(index=index, offset=offset, size=size, last=last)]
    return pb.FetchFilesResponse(parts=recipe_parts, data=data)


CONTENTS = [
    pytest.param([part(b"other bytes")], id="other bytes of the same size"),
    pytest.param([part(b"short")], id="too few bytes"),
    pytest.param([part(CONTENT * 2)], id="too many bytes"),
    pytest.param([part(CONTENT, index=1)], id="another file"),
    pytest.param([part(CONTENT, index=-1)], id="a negative place"),
    pytest.param([part(CONTENT, offset=5)], id="a gap"),
    pytest.param([part(CONTENT), part(CONTENT)], id="twice"),
    pytest.param([part(CONTENT, size=5)], id="sizes that are wrong"),
    pytest.param([part(b"", size=1 << 40)], id="a size of a terabyte"),
    pytest.param([part(CONTENT, size=-5)], id="a negative size"),
    pytest.param(
        [pb.FetchFilesResponse(parts=[pb.FilePart(size=11)], data=b"junk", compressed=True)],
        id="junk in place of compressed data",
    ),
]


@pytest.mark.parametrize("answers", CONTENTS)
async def test_invalid_contents_of_the_server_are_refused(
    answers, lying_server, root: Path
) -> None:
    lying_server[0].answers = lambda request: answers
    with pytest.raises(ProtocolViolation):
        await pull(root, lying_server[1])
    assert is_unchanged(root)


async def test_a_file_that_a_task_still_writes_is_a_conflict(lying_server, root: Path) -> None:
    lying_server[0].answers = lambda request: [part(CONTENT * 2)]
    remote = Remote(lying_server[1], "w")
    download = Download(0, await remote.task_files(7), root.parent / "data", task=7)
    with pytest.raises(Conflict, match="'a' has changed while it was fetched") as refused:
        await fetch_contents(remote, download, lambda files, size: None)
    assert "task 7 still writes it" in refused.value.hint
    assert is_unchanged(root)


async def test_a_broken_download_is_resumed(lying_server, root: Path, monkeypatch) -> None:
    monkeypatch.setattr("hai_sync.remote.downloader.delays", lambda: iter([0.0] * 9))
    requested_offsets: list[int] = []

    def breaking(request: pb.FetchFilesRequest) -> list[pb.FetchFilesResponse]:
        offset = request.offsets[0]
        requested_offsets.append(offset)
        end = min(offset + 4, len(CONTENT))
        return [part(CONTENT[offset:end], offset=offset, last=end == len(CONTENT))]

    lying_server[0].answers = breaking
    await pull(root, lying_server[1])
    assert requested_offsets == [0, 4, 8]
    assert (root / "a").read_bytes() == CONTENT


PUSHES = [
    pytest.param([], id="no answer at all"),
    pytest.param(
        [pb.PushTreeResponse(missing=pb.MissingContents(answered=7))], id="answers out of order"
    ),
]


@pytest.mark.parametrize("pushed", PUSHES)
async def test_invalid_answers_to_a_push_are_refused(pushed, lying_server, root: Path) -> None:
    lying_server[0].pushed = pushed
    with pytest.raises((ProtocolViolation, ServerError)):  # gRPC may find the error first
        await pull(root, lying_server[1], Mode.PUSH)
    assert is_unchanged(root)


async def test_a_server_without_tags_has_no_tagged_revisions(lying_server) -> None:
    remote = Remote(lying_server[1], "w")
    assert [each.number for each in await remote.revisions(9)] == [1]
    assert await remote.revisions(9, tagged=True) == []
