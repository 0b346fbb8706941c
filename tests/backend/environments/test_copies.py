"""Copies on a node's disk are complete or missing, stay within the limit, and are not deleted while in use."""

from __future__ import annotations

import fcntl
import io
import os
import signal
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from hai_backend.environments import copies
from hai_backend.environments.copies import LayerRequest
from hai_backend.environments.records import BrokenEnvironment
from hai_backend.environments.unpack import copy_layers
from tests.support.environments import layer_of, lock_of, make_environment, make_image

FILES = [
    ("bin/tool", b"#!/bin/sh\n"),
    ("lib/python3.11/site-packages/paint.py", b"colour = 'blue'\n"),
]
ROOMY = 1 << 20
CHANGES = ("os.rename", "os.mkdir", "os.symlink", "os.remove", "os.rmdir", "os.utime")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    made = tmp_path / "disk"
    made.mkdir()
    return made


@pytest.fixture
def packed(root: Path) -> Callable[..., LayerRequest]:
    """Create and pack an environment of ann with so many bytes."""

    def make(name: str = "mine", size: int = 0, members: Any = FILES) -> LayerRequest:
        make_environment(root, "ann", name, lock=lock_of(f"# {name}"))
        layer = layer_of(root, "ann", name)
        make_image(layer, [("data", b"x" * size)] if size else members)
        layer_request = copies.find_packed_layer(root, "ann", layer.name)
        assert layer_request is not None
        return layer_request

    return make


@pytest.fixture
def locked() -> Iterator[list[int]]:
    descriptors: list[int] = []
    yield descriptors
    for each in descriptors:
        os.close(each)


def take(root: Path, disk: Path, *layer_request: LayerRequest, limit: int = ROOMY) -> None:
    copy_layers(root, disk, limit, [(each.owner, each.layer) for each in layer_request])


def directory_of(disk: Path) -> Path:
    return disk / str(os.geteuid())


def copied_layers(disk: Path) -> set[str]:
    return {path.name for path, _, _ in copies.list_copies(directory_of(disk))}


def used_at(disk: Path, layer_request: LayerRequest, timestamp: float) -> None:
    os.utime(
        copies.copy_path(directory_of(disk), layer_request) / copies.RECORD, (timestamp, timestamp)
    )


def test_a_copy_contains_the_packed_files(
    root: Path, disk: Path, packed: Any, locked: list[int]
) -> None:
    layer_request = packed(
        members=[*FILES, link("bin/python", sys.executable), link("lib64", "lib")]
    )
    take(root, disk, layer_request)
    copy = copies.copy_path(directory_of(disk), layer_request)
    assert {name: (copy / name).read_bytes() for name, _ in FILES} == dict(FILES)
    assert os.readlink(copy / "bin" / "python") == sys.executable
    assert (copy / "lib64" / "python3.11").is_dir()
    locked += copies.lock_copies(directory_of(disk), [layer_request]) or []
    assert locked


def link(name: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    ("members", "why"),
    [
        pytest.param([("../evil", b"x")], "leads out", id="climbs"),
        pytest.param([("lib/../../evil", b"x")], "leads out", id="climbs in the middle"),
        pytest.param([("/tmp/evil", b"x")], "leads out", id="absolute"),
        pytest.param([("a//b", b"x")], "leads out", id="an empty part"),
        pytest.param([link("lib/x", "/etc")], "not a file", id="a link to anywhere"),
        pytest.param([link("lib/x", "../../..")], "not a file", id="a link that climbs"),
        pytest.param([link("lib/x", "..")], "not a file", id="a link to above"),
        pytest.param([link("bin/pythonx/y", "/etc")], "not a file", id="a link below what looks like Python"),
        pytest.param([link("lib", "bin"), ("lib/evil", b"x")], "File exists", id="a file below a link"),
        pytest.param([link("bin/python", "/tmp"), link("bin/python/evil", "x")], "below a link",
                     id="a link below a link"),
        pytest.param([special("x", tarfile.LNKTYPE, "/etc/passwd")], "not a file", id="a hard link"),
        pytest.param([special("x", tarfile.FIFOTYPE)], "not a file", id="a pipe"),
        pytest.param([special("x", tarfile.CHRTYPE)], "not a file", id="a device"),
        pytest.param([("x", b"1"), ("x", b"2")], "File exists", id="one name twice"),
    ],
)  # fmt: skip
def test_members_outside_the_directory_are_refused(
    root: Path, disk: Path, packed: Any, members: Any, why: str
) -> None:
    layer_request = packed(members=members)
    with pytest.raises((BrokenEnvironment, OSError), match=why):
        take(root, disk, layer_request)
    assert copied_layers(disk) == set()
    assert not list(disk.parent.rglob("evil"))


def _cut(layer: Path) -> None:
    os.truncate(layer / "image.tar.zst", 60)


def _another(layer: Path) -> None:
    text = (layer / "image.toml").read_text()
    make_image(layer, [("data", b"y" * 60)])
    (layer / "image.toml").write_text(text)


def _more_files(layer: Path) -> None:
    make_image(layer, [("data", b"x" * 60), ("more", b"")])
    text = (layer / "image.toml").read_text().replace("files = 2", "files = 1")
    (layer / "image.toml").write_text(text)


def _understated(layer: Path) -> None:
    text = (layer / "image.toml").read_text().replace("unpacked_bytes = 60", "unpacked_bytes = 59")
    (layer / "image.toml").write_text(text)


def _linked(layer: Path) -> None:
    (layer / "image.tar.zst").rename(layer / "other")
    (layer / "image.tar.zst").symlink_to("other")


@pytest.mark.parametrize("change", [_cut, _another, _more_files, _understated, _linked])
def test_an_image_that_differs_from_its_record_is_refused(
    root: Path, disk: Path, packed: Any, change: Callable[[Path], None]
) -> None:
    packed(size=60)
    change(layer_of(root, "ann", "mine"))
    layer_request = copies.find_packed_layer(root, "ann", layer_of(root, "ann", "mine").name)
    assert layer_request is not None
    with pytest.raises((BrokenEnvironment, OSError)):
        take(root, disk, layer_request)
    assert copied_layers(disk) == set()


def test_the_least_recently_used_copy_is_deleted_unless_it_is_in_use(
    root: Path, disk: Path, packed: Any, locked: list[int]
) -> None:
    old, serving, new, next_ = (packed(name, size=100) for name in ("a", "b", "c", "d"))
    for timestamp, each in enumerate((serving, old, new)):
        take(root, disk, each, limit=300)
        used_at(disk, each, timestamp)
    locked += copies.lock_copies(directory_of(disk), [serving]) or []
    used_at(disk, serving, -1)  # used before all others
    take(root, disk, next_, limit=300)
    assert copied_layers(disk) == {serving.layer, new.layer, next_.layer}


def test_missing_space_is_reported_and_deletes_no_copy_in_use(
    root: Path, disk: Path, packed: Any, locked: list[int]
) -> None:
    serving, big = packed("a", size=100), packed("b", size=250)
    take(root, disk, serving)
    locked += copies.lock_copies(directory_of(disk), [serving]) or []
    with pytest.raises(BrokenEnvironment, match="limit of 300 bytes is exceeded by 50"):
        take(root, disk, big, limit=300)
    assert copied_layers(disk) == {serving.layer}


def test_a_used_copy_becomes_the_most_recent_one(root: Path, disk: Path, packed: Any) -> None:
    first, second, third = (packed(name, size=100) for name in ("a", "b", "c"))
    for timestamp, each in enumerate((first, second)):
        take(root, disk, each)
        used_at(disk, each, timestamp)
    for each in copies.lock_copies(directory_of(disk), [first]) or []:
        os.close(each)
    take(root, disk, third, limit=200)
    assert copied_layers(disk) == {first.layer, third.layer}


def test_a_copy_of_another_image_is_replaced_once_it_is_unused(
    root: Path, disk: Path, packed: Any
) -> None:
    before = packed(size=10)
    take(root, disk, before)
    locked = copies.lock_copies(directory_of(disk), [before])
    assert locked is not None
    after = packed(size=20)
    with pytest.raises(BrokenEnvironment, match="a task uses a copy"):
        take(root, disk, after)
    assert copies.lock_copies(directory_of(disk), [after]) is None
    os.close(locked[0])
    take(root, disk, after)
    assert (copies.copy_path(directory_of(disk), after) / "data").stat().st_size == 20


def test_a_copy_that_is_being_deleted_cannot_be_locked(root: Path, disk: Path, packed: Any) -> None:
    layer_request = packed()
    take(root, disk, layer_request)
    descriptor = copies.lock_directory(
        copies.copy_path(directory_of(disk), layer_request), fcntl.LOCK_EX
    )
    assert descriptor is not None
    assert copies.lock_copies(directory_of(disk), [layer_request]) is None
    os.close(descriptor)


def test_a_directory_that_other_users_may_write_is_not_used(disk: Path) -> None:
    directory_of(disk).mkdir()
    directory_of(disk).chmod(0o777)
    with pytest.raises(BrokenEnvironment, match="only uid"):
        copies.make_account_directory(disk)


def test_a_missing_disk_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BrokenEnvironment, match="No such file"):
        copies.make_account_directory(tmp_path / "none")


def test_a_process_that_is_killed_at_any_step_leaves_no_incomplete_copy(
    root: Path, disk: Path, packed: Any
) -> None:
    """A copy that has its name is complete, and the next process leaves no remains."""
    other, layer_request = packed("other", size=300), packed()
    take(root, disk, other)
    step = 1
    while _killed_at(step, lambda: take(root, disk, layer_request, limit=310)):
        for path, _, size in copies.list_copies(directory_of(disk)):
            assert size in (300, sum(len(data) for _, data in FILES))
            names = {str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()}
            assert names in ({"data", "copy.toml"}, {"copy.toml", *(name for name, _ in FILES)})
        take(root, disk, other)
        assert copied_layers(disk) >= {other.layer}
        for kind in (copies.BUILDING, copies.TRASH):
            assert not list((directory_of(disk) / kind).iterdir())
        step += 1
    assert step > 10
    assert copied_layers(disk) == {layer_request.layer}


def _killed_at(step: int, work: Callable[[], None]) -> bool:
    """Run work in a child that is killed before its n-th change of the file system. Return False if it ended before."""
    child = os.fork()
    if child == 0:
        _die_at(step)
        with redirect_stdout(io.StringIO()):
            work()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def _die_at(step: int) -> None:
    left = step

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        if event in CHANGES or writes:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
