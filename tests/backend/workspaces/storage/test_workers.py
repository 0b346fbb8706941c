"""Where storage is slow, threads work concurrently, with the same results as one thread, and open no file twice."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain, repeat
from pathlib import Path
from types import ModuleType

import pytest
from blake3 import blake3

from hai_backend.domain.errors import Conflict, Invalid, NotFound
from hai_backend.domain.workspace import Entry, EntryKind, PassedOver
from hai_backend.workspaces import checkouts, read, restore
from hai_backend.workspaces.files import WorkspaceFiles, make_directories
from hai_backend.workspaces.push import (
    apply,
    commit_preparation,
    materialize,
    overwrite_guard,
    removal,
)
from hai_backend.workspaces.push.push import Push
from hai_backend.workspaces.push.receive import ContentsMessage
from hai_backend.workspaces.push.staging import Author
from hai_backend.workspaces.storage import prefetch, tree_scan, workers
from hai_backend.workspaces.storage.directory_scan import DirectoryScan, ScanRequest, ScanResult
from hai_backend.workspaces.storage.workers import SLOW_SECONDS, StorageSpeed, WorkerPool

FOLDERS, FILES = 6, 10
MTIME = 1_600_000_000_000_000_000
LONG_AGO = (1_500_000_000, 1_500_000_000)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[WorkspaceFiles]:
    """A workspace with files that programs wrote and no scan has found yet."""
    directory = tmp_path / "u" / "w"
    make_directories(directory, 0)
    write(directory / "files")
    files = WorkspaceFiles(directory, 0)
    apply.recover(files)
    with closing(files):
        yield files


def write(tree: Path) -> None:
    for number in range(FOLDERS):
        folder = tree / "pkg" / f"d{number}" / "inner"
        folder.mkdir(parents=True)
        for name in range(FILES):
            file = folder.parent / f"f{name}"
            file.write_bytes(b"%d of %d" % (name, number))
            os.utime(file, LONG_AGO)
        (folder / "empty").touch()
        (folder / "run").write_bytes(b"#!")
        (folder / "run").chmod(0o755)
        (folder / "link").symlink_to("../f0")
    (tree / "out").symlink_to("/etc")
    (tree / "large").write_bytes(os.urandom(200_000))


def scan_tree(files: WorkspaceFiles, passed_over: PassedOver | None = None) -> int:
    return tree_scan.scan_tree(files, Author("tasks", 1.0), passed_over).number


def entries(files: WorkspaceFiles, revision: int) -> list[Entry]:
    return [entry for page in files.index.iterate_tree(revision) for entry in page]


def describe_tree(root: Path) -> dict[str, object]:
    """Return mode, time and content of each path."""
    found: dict[str, object] = {}
    for path in root.rglob("*"):
        now = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes()
        at = now.st_mtime_ns if path.is_file() and not path.is_symlink() else 0
        found[str(path.relative_to(root))] = (now.st_mode, at, content)
    return found


def make_barrier(number: int) -> Callable[[], None]:
    """Return a function that blocks until so many threads have called it."""
    barrier = threading.Barrier(number, timeout=20)
    return lambda: None if barrier.broken else barrier.wait() and None


@pytest.mark.usefixtures("slow_storage")
def test_a_scan_reads_many_directories_concurrently(files: WorkspaceFiles, monkeypatch) -> None:
    wait_for_others, real = make_barrier(FOLDERS), DirectoryScan.scan

    def run_together(self: DirectoryScan, request: ScanRequest) -> ScanResult:
        if request.folder.count("/") == 1 and request.names is None:
            wait_for_others()
        return real(self, request)

    monkeypatch.setattr(DirectoryScan, "scan", run_together)
    assert scan_tree(files) == 1


@pytest.mark.usefixtures("slow_storage")
def test_a_scan_reads_one_large_directory_in_many_threads(
    files: WorkspaceFiles, monkeypatch
) -> None:
    wait_for_others, real = make_barrier(5), DirectoryScan.scan

    def run_together(self: DirectoryScan, request: ScanRequest) -> ScanResult:
        if request.names is not None and request.folder == "pkg/flat":
            wait_for_others()
        return real(self, request)

    (files.tree / "pkg" / "flat").mkdir()
    for name in range(24):
        (files.tree / "pkg" / "flat" / str(name)).touch()
    monkeypatch.setattr(DirectoryScan, "scan", run_together)
    assert scan_tree(files) == 1
    assert sum(entry.path.startswith("pkg/flat/") for entry in entries(files, 1)) == 24


def test_a_scan_finds_the_same_with_and_without_threads(
    files: WorkspaceFiles, tmp_path: Path, request
) -> None:
    skipped_by_one, skipped_by_many = PassedOver(), PassedOver()
    scan_tree(files, skipped_by_one)
    request.getfixturevalue("slow_storage")
    assert scan_tree(files, skipped_by_many) == 1, "nothing has changed"
    assert skipped_by_many == skipped_by_one
    assert list(skipped_by_one.reasons) == ["out"]
    one = entries(files, 1)
    other = tmp_path / "u" / "other"
    make_directories(other, 0)
    os.rename(files.tree, other / "files")
    with closing(WorkspaceFiles(other, 0)) as second:
        assert scan_tree(second) == 1
        assert entries(second, 1) == one
        (second.tree / "pkg/d1/f1").write_bytes(b"changed")
        (second.tree / "pkg/d2/f2").unlink()
        os.rename(second.tree / "pkg/d3", second.tree / "moved")
        assert scan_tree(second) == 2
        changed = [entry.path for page in second.index.iterate_changes(1, 2) for entry in page]
        assert {"pkg/d1/f1", "pkg/d2/f2", "pkg/d3", "pkg/d3/inner/run", "moved/f9"} <= set(changed)


@pytest.mark.usefixtures("slow_storage")
def test_many_files_of_a_task_are_created_concurrently(files: WorkspaceFiles, monkeypatch) -> None:
    scan_tree(files)
    wait_for_others, real, batches = make_barrier(5), checkouts._Copier.put, []

    def run_together(self: checkouts._Copier, request: list[Entry]) -> int:
        batches.append(request)
        if 1 < len(batches) <= 6:
            wait_for_others()
        return real(self, request)

    monkeypatch.setattr(checkouts._Copier, "put", run_together)
    checkouts.create(files, 1, 1, 0)
    assert describe_tree(files.tasks / "1").keys() == describe_tree(files.tree).keys() - {"out"}


@pytest.mark.parametrize("how", ["slow_storage", "quick_storage"])
def test_a_task_directory_is_the_same_with_and_without_threads(
    files: WorkspaceFiles, how: str, request
) -> None:
    scan_tree(files)
    request.getfixturevalue(how)
    checkouts.create(files, 1, 1, 0)
    found = describe_tree(files.tree)
    del found["out"]
    assert describe_tree(files.tasks / "1") == found
    written = [entry for page in checkouts.list_written_files(files, 1) for entry in page]
    assert {entry.kind for entry in written} == {EntryKind.DIRECTORY}, (
        "all files are as checked out"
    )
    checkouts.remove_unchanged(files, 1)
    assert not (files.tasks / "1").exists()


@pytest.mark.parametrize("how", ["slow_storage", "quick_storage"])
def test_only_files_that_a_task_wrote_are_kept(files: WorkspaceFiles, how: str, request) -> None:
    scan_tree(files)
    request.getfixturevalue(how)
    checkouts.create(files, 1, 1, 0)
    task = files.tasks / "1"
    (task / "pkg/d1/f1").write_bytes(b"written")
    (task / "pkg/d2/f2").unlink()
    (task / "pkg/d2/f2").mkdir()
    (task / "pkg/d3/made/deep").mkdir(parents=True)
    (task / "pkg/d4/inner/link").unlink()
    (task / "pkg/d4/inner/link").symlink_to("../f1")
    checkouts.remove_unchanged(files, 1)
    retained = {"pkg/d1/f1", "pkg/d3/made/deep", "pkg/d4/inner/link"}
    assert describe_tree(task).keys() == retained | {
        "pkg",
        "pkg/d1",
        "pkg/d3",
        "pkg/d3/made",
        "pkg/d4",
        "pkg/d4/inner",
    }
    assert files.stored_bytes() > files.index.newest_revision().size_bytes
    checkouts.remove_unchanged(files, 1)
    assert retained <= describe_tree(task).keys()


@pytest.mark.usefixtures("slow_storage")
def test_many_files_are_removed_concurrently(files: WorkspaceFiles, monkeypatch) -> None:
    wait_for_others, started, real = make_barrier(5), [], removal._FileRemover.remove

    def run_together(self: removal._FileRemover, inside: removal.DirectoryFiles) -> tuple[str, int]:
        started.append(inside)
        if 1 < len(started) <= 6:
            wait_for_others()
        return real(self, inside)

    monkeypatch.setattr(removal._FileRemover, "remove", run_together)
    removal.remove_tree(files.path)
    assert not files.path.exists()


@pytest.mark.usefixtures("slow_storage")
def test_a_lost_content_is_reported_from_any_thread(files: WorkspaceFiles) -> None:
    scan_tree(files)
    for name in ("pkg/d3/f3", "pkg/d4/f4"):
        (files.tree / name).write_bytes(b"by a program")
    with pytest.raises(Conflict) as refused:
        checkouts.create(files, 1, 1, 0)
    assert refused.value.reason == "CONTENT_LOST"
    assert not (files.tasks / "1").exists()
    assert scan_tree(files) == 2
    checkouts.create(files, 1, 2, 0)
    assert (files.tasks / "1" / "pkg/d3/f3").read_bytes() == b"by a program"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The calls of `open` and `stat` from now on, with the names of their files."""
    calls = list[tuple[str, str]]()

    def count(call: str) -> None:
        real = getattr(os, call)

        def counted(path, *args, **more):
            calls.append((call, os.path.basename(path)))
            return real(path, *args, **more)

        monkeypatch.setattr(os, call, counted)

    count("open")
    count("stat")
    return calls


@pytest.mark.usefixtures("quick_storage")
def test_no_file_is_opened_twice_for_a_task_directory(files: WorkspaceFiles, calls) -> None:
    scan_tree(files)
    calls.clear()
    checkouts.create(files, 1, 1, 0)
    assert calls.count(("open", "large")) == 2, "the file and its copy"
    assert calls.count(("open", "files")) == 1, "directories stay open"


@pytest.mark.usefixtures("quick_storage")
def test_directories_stay_open_while_files_are_read(files: WorkspaceFiles, calls) -> None:
    scan_tree(files)
    calls.clear()
    paths = [f"pkg/d1/f{number}" for number in range(FILES)]
    [bundle] = read.read_files(read.RevisionFiles(files, 1), paths, (), compress=False)
    assert bundle.data == b"".join(b"%d of 1" % number for number in range(FILES))
    for name in ("files", "pkg", "d1"):
        assert calls.count(("open", name)) == 1


@pytest.fixture(params=["of a revision", "of a task"])
def source(request: pytest.FixtureRequest, files: WorkspaceFiles) -> prefetch.FileSource:
    """The files of the workspace, in a revision and in the directory of a task."""
    scan_tree(files)
    checkouts.create(files, 7, 1, 0)
    of_task, of_revision = checkouts.TaskFiles(files, 7), read.RevisionFiles(files, 1)
    return of_task if request.param == "of a task" else of_revision


def read_contents(source: prefetch.FileSource, paths: list[str], offsets: list[int]) -> list[bytes]:
    """Read files from offsets, and return their contents."""
    contents = [b""] * len(paths)
    for bundle in read.read_files(source, paths, offsets, compress=False):
        data = bundle.data
        for request in bundle.parts:
            assert request.offset == offsets[request.index] + len(contents[request.index])
            contents[request.index] += data[: request.size]
            data = data[request.size :]
    return contents


@pytest.mark.usefixtures("slow_storage")
def test_small_files_are_prefetched_and_yielded_in_order(
    files: WorkspaceFiles, source: prefetch.FileSource, monkeypatch
) -> None:
    wait_for_others, real = make_barrier(3), prefetch._SmallFileReader.read

    def run_together(self: prefetch._SmallFileReader, paths: list[str]) -> list[bytes | None]:
        if any("d3" in path for path in paths):
            wait_for_others()
        return real(self, paths)

    monkeypatch.setattr(prefetch._SmallFileReader, "read", run_together)
    paths = [f"pkg/d{i}/f{j}" for i in range(FOLDERS) for j in range(FILES)]
    paths[7:7] = ["large", "pkg/d2/inner/empty"]
    offsets = [index % 3 for index in range(len(paths))]
    offsets[8] = 0
    expected = [(files.tree / path).read_bytes() for path in paths]
    assert read_contents(source, paths, offsets) == [
        content[offset:] for content, offset in zip(expected, offsets, strict=True)
    ]


@pytest.mark.parametrize(
    ("wrong", "offset", "error"),
    [
        pytest.param("pkg/d0/f3", 9999, Invalid, id="an offset behind its end"),
        pytest.param("pkg/d0", 0, NotFound, id="a directory"),
        pytest.param("pkg/none", 0, NotFound, id="nothing"),
        pytest.param("../x", 0, NotFound, id="outside"),
    ],
)
@pytest.mark.parametrize("storage", ["slow_storage", "quick_storage"])
def test_an_unreadable_file_is_reported(
    source: prefetch.FileSource, storage, wrong, offset, error, request
) -> None:
    request.getfixturevalue(storage)
    with pytest.raises(error):
        read_contents(source, ["pkg/d0/f1", wrong, "pkg/d0/f2"], [0, offset, 0])


@pytest.mark.parametrize("storage", ["slow_storage", "quick_storage"])
def test_files_before_a_lost_one_are_yielded(files: WorkspaceFiles, storage, request) -> None:
    request.getfixturevalue(storage)
    scan_tree(files)
    (files.tree / "pkg/d0/f5").write_bytes(b"by a program")
    bundles = read.read_files(
        read.RevisionFiles(files, 1), [f"pkg/d0/f{n}" for n in range(FILES)], (), compress=False
    )
    assert [request.index for request in next(bundles).parts] == [0, 1, 2, 3, 4]
    with pytest.raises(Conflict, match="pkg/d0/f5 is lost"):
        next(bundles)


@pytest.mark.usefixtures("slow_storage")
def test_a_large_file_is_opened_once_and_closed_when_the_reader_stops(
    files: WorkspaceFiles, calls
) -> None:
    scan_tree(files)
    before = len(os.listdir("/proc/self/fd"))
    calls.clear()
    paths = ["large", *(f"pkg/d1/f{n}" for n in range(FILES))]
    bundles = read.read_files(read.RevisionFiles(files, 1), paths, (), compress=False)
    next(bundles)
    bundles.close()
    assert calls.count(("open", "large")) == 1
    assert len(os.listdir("/proc/self/fd")) == before
    assert not [t for t in threading.enumerate() if t.name.startswith("storage")]


@pytest.mark.usefixtures("slow_storage")
@pytest.mark.parametrize(
    ("module", "class_name", "method"),
    [
        pytest.param(materialize, "Materializer", "store", id="storing contents"),
        pytest.param(overwrite_guard, "_ChangeChecker", "require", id="checking replaced files"),
        pytest.param(apply, "_FileInstaller", "install", id="moving files"),
    ],
)
def test_the_steps_of_a_push_run_concurrently(
    files: WorkspaceFiles, module: ModuleType, class_name: str, method: str, monkeypatch
) -> None:
    scan_tree(files)
    wait_for_others, worker, started = make_barrier(2), getattr(module, class_name), []
    real = getattr(worker, method)

    def run_together(self, batch):
        started.append(batch)
        if 1 < len(started) < 4:
            wait_for_others()
        return real(self, batch)

    monkeypatch.setattr(worker, method, run_together)
    new = {f"pkg/d{i}/f{j}": b"new %d %d" % (i, j) for i in range(FOLDERS) for j in range(FILES)}
    with closing(push_contents(files, new)) as push:
        assert push.commit(1, Author("me", 2.0), allow_many_removals=False).changed == len(new)
    assert {path: (files.tree / path).read_bytes() for path in new} == new
    assert sum(map(len, started)) >= len(new)


@pytest.mark.usefixtures("slow_storage")
def test_contents_for_a_restore_are_copied_concurrently(files: WorkspaceFiles, monkeypatch) -> None:
    scan_tree(files)
    before = {path.name: path.read_bytes() for path in (files.tree / "pkg/d1").glob("f*")}
    new = {f"pkg/d1/f{i}": b"new %d" % i for i in range(FILES)} | {"pkg/d1/same": b"0 of 1"}
    with closing(push_contents(files, new)) as push:
        push.commit(1, Author("me", 2.0), allow_many_removals=False)
    wait_for_others, started, real = (
        make_barrier(2),
        [],
        commit_preparation._ContentProvider.provide,
    )

    def run_together(
        self: commit_preparation._ContentProvider, batch: list[commit_preparation._RequiredContent]
    ) -> list[str]:
        started.append(batch)
        if 1 < len(started) < 4:
            wait_for_others()
        return real(self, batch)

    monkeypatch.setattr(commit_preparation._ContentProvider, "provide", run_together)
    assert restore.restore(files, 1, [], Author("me", 3.0)).number == 3
    assert {path.name: path.read_bytes() for path in (files.tree / "pkg/d1").glob("f*")} == before
    assert len(started) >= FILES // 2


@pytest.mark.parametrize("how", ["slow_storage", "quick_storage"])
def test_two_contents_for_one_path_are_not_mixed(files: WorkspaceFiles, how: str, request) -> None:
    """The last one of two entries for one path counts."""
    scan_tree(files)
    request.getfixturevalue(how)
    contents = {f"new/f{number}": b"%d" % number * 1000 for number in range(40)}
    written = [file_entry(path, data) for path, data in contents.items()]
    written += [file_entry(f"new/f{number}", b"again %d" % number) for number in range(40)]
    pieces = {blake3(data).digest(): data for data in contents.values()}
    pieces |= {blake3(data).digest(): data for data in (b"again %d" % i for i in range(40))}
    with closing(Push(files, 1)) as push:
        missing = push.add_changes(written)
        contents_missing = [pieces[digest] for digest in missing]
        push.receive(
            [
                ContentsMessage(
                    missing,
                    [len(data) for data in contents_missing],
                    b"".join(contents_missing),
                    False,
                )
            ]
        )
        push.commit(1, Author("me", 2.0), allow_many_removals=False)
    for number in range(40):
        assert (files.tree / f"new/f{number}").read_bytes() == b"again %d" % number


def file_entry(path: str, data: bytes) -> Entry:
    return Entry(path, EntryKind.FILE, False, len(data), MTIME, blake3(data).digest())


def push_contents(files: WorkspaceFiles, contents: dict[str, bytes]) -> Push:
    """Start a push, and send it the contents."""
    push = Push(files, 1)
    contents_by_digest = {blake3(data).digest(): data for data in contents.values()}
    missing = push.add_changes([file_entry(path, data) for path, data in contents.items()])
    contents_missing = [contents_by_digest[digest] for digest in missing]
    push.receive(
        [
            ContentsMessage(
                missing, [len(data) for data in contents_missing], b"".join(contents_missing), False
            )
        ]
    )
    return push


@pytest.mark.usefixtures("quick_storage")
def test_replaced_files_are_not_opened(files: WorkspaceFiles, calls) -> None:
    scan_tree(files)
    calls.clear()
    new = {f"pkg/d1/f{i}": b"new %d" % i for i in range(FILES)}
    with closing(push_contents(files, new)) as push:
        digests = {blake3(data).hexdigest() for data in new.values()}
        assert push.commit(1, Author("me", 2.0), allow_many_removals=False).number == 2
    names = {name.rpartition("/")[2] for name in new}
    assert not [name for call, name in calls if call == "open" and name in names]
    assert not [name for call, name in calls if call == "stat" and name in digests]
    assert {path: (files.tree / path).read_bytes() for path in new} == new
    with closing(push_contents(files, {})) as push:
        assert not push.add_changes(
            [Entry("x", EntryKind.FILE, False, 8, 0, blake3(b"1 of 1").digest())]
        )


class Counter:
    """A worker that only counts."""

    made = 0

    def __init__(self) -> None:
        Counter.made += 1
        self.done = 0
        self.closed = False

    def close(self) -> None:
        assert not self.closed
        self.closed = True

    def add(self, number: int) -> int:
        self.done += 1
        if number < 0:
            raise ValueError(number)
        return number


@pytest.mark.parametrize(
    ("seconds", "slow"),
    [
        pytest.param(0.04, False, id="too short to decide"),
        pytest.param(0.06, False, id="as expected"),
        pytest.param(0.2, True, id="longer"),
    ],
)
def test_slow_storage_is_detected(seconds: float, slow: bool, monkeypatch) -> None:
    times = chain([0.0, 0.0], repeat(seconds))
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    with closing(WorkerPool(Counter, 0.1)) as pool:
        assert pool.submit(Counter.add, 1).result() == 1
        assert (pool.max_pending > 1) is slow


@pytest.mark.parametrize("slow", [True, False])
def test_results_come_in_order_and_an_error_ends_them(slow: bool, monkeypatch) -> None:
    monkeypatch.setattr(workers, "is_slow", lambda took, usual: slow)
    with closing(WorkerPool(Counter, 0.0)) as pool:
        assert list(pool.map_ordered(Counter.add, range(200))) == list(range(200))
    started: list[int] = []

    def numbers() -> Iterator[int]:
        for number in (1, 2, -3, *range(10_000)):
            started.append(number)
            yield number

    with pytest.raises(ValueError, match="-3"), closing(WorkerPool(Counter, 0.0)) as pool:
        list(pool.map_ordered(Counter.add, numbers()))
    assert len(started) < 100, "work starts shortly before its result is used"


def test_a_measurement_of_storage_is_valid_for_a_while(monkeypatch) -> None:
    times = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: times[-1])
    monkeypatch.setattr(workers, "is_slow", lambda took, usual: True)
    storage = StorageSpeed()
    with closing(WorkerPool(Counter, 0.0, storage)) as first:
        assert first.max_pending == 1
        first.submit(Counter.add, 1)
    for later, ahead in ((SLOW_SECONDS - 1, 32), (SLOW_SECONDS, 1)):
        times.append(later)
        with closing(WorkerPool(Counter, 0.0, storage)) as next_one:
            assert next_one.max_pending == ahead
    with closing(WorkerPool(Counter, 0.0)) as other_storage:
        assert other_storage.max_pending == 1


def test_a_push_measures_storage_once(files: WorkspaceFiles, monkeypatch) -> None:
    measurements: list[float] = []
    monkeypatch.setattr(workers, "is_slow", lambda took, usual: not measurements.append(took))
    with closing(
        push_contents(files, {f"f{number}": b"%d" % number for number in range(40)})
    ) as push:
        push.commit(0, Author("me", 2.0), allow_many_removals=False)
    assert len(measurements) == 1
    assert (files.tree / "f39").read_bytes() == b"39"
