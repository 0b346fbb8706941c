"""Images of layers are reproducible, one per layer, and never incomplete."""

from __future__ import annotations

import errno
import os
import subprocess
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from haienv.layers.packing import read_image


def images(haienv: Any, name: str) -> dict[str, str]:
    """Return the hashes of images by environment, from the output of `pack`."""
    return {e["environment"]: e["sha256"] for e in haienv.ok(f"pack {name} --json").json["layers"]}


def test_the_same_packages_are_the_same_bytes(haienv: Any, tmp_path: Path) -> None:
    haienv.ok("create base --no_extend fast tool")
    haienv.ok("create top --extend base plain")
    first = images(haienv, "top")
    assert set(first) == {"top[ann]", "base[ann]"}
    assert all(first.values())
    haienv.run("top", "import fast, plain")  # leaves bytecode beside modules
    haienv.ok("pack top --remove")
    assert images(haienv, "top") == first
    haienv.monkeypatch.setenv("HAIENV_HOME", str(tmp_path / "elsewhere"))
    haienv.ok("create base --no_extend fast tool")
    haienv.ok("create top --extend base plain")
    assert images(haienv, "top") == first


def test_an_image_contains_bytecode(haienv: Any) -> None:
    haienv.ok("create one --no_extend fast tool")
    haienv.ok("pack one")
    path = haienv.get("one").path
    with (path / "image.tar.zst").open("rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file)
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            members = {member.name: member for member in archive}
    site = "lib/python3.11/site-packages"
    assert f"{site}/fast/__pycache__/__init__.cpython-311.pyc" in members
    assert members["bin/python"].issym()
    assert {m.mtime for m in members.values()} == {0}
    assert {(m.uid, m.uname) for m in members.values()} == {(0, "")}
    assert not {"layer.toml", "lock.txt", "used", "image.toml"} & set(members)
    assert haienv.ok("info one --json").json["packed"]
    assert haienv.ok("verify one").code == 0


def test_large_files_are_not_read_into_memory(
    haienv: Any, tmp_path: Path, make_wheel: Callable[..., Path]
) -> None:
    size = 32 << 20
    haienv.monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    make_wheel("cuda", "1.0", more={"cuda/lib.so": "\0" * size})
    haienv.ok("create one --no_extend cuda")
    tracemalloc.start()
    try:
        haienv.ok("pack one")
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], object]]:
    """Mounts a small disk as the root of environments; a call resizes it."""

    def mount(options: str) -> bool:
        mount_command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(mount_point)]
        return subprocess.run(mount_command, capture_output=True).returncode == 0

    mount_point = tmp_path / "ro ot"
    mount_point.mkdir()
    if not mount("size=2500k"):
        pytest.skip("needs the right to mount a small file system")
    yield lambda size: subprocess.run(
        ["mount", "-o", f"remount,size={size}", mount_point], check=True
    )
    subprocess.run(["umount", "-l", mount_point], check=True)


def test_a_full_disk_leaves_no_image_without_bytecode(
    haienv: Any, small_disk: Any, tmp_path: Path, make_wheel: Callable[..., Path]
) -> None:
    """The disk becomes full while bytecode is written, where versions of Python leave different files."""
    haienv.monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    make_wheel("big", "1.0", more={"big/text.py": f"TEXT = '{'x' * 1_500_000}'\n"})
    haienv.ok("create one --no_extend big")
    failed = haienv("pack one --json")
    assert (failed.code, failed.error["reason"]) == (1, "NO_ROOM")
    assert read_image(haienv.get("one").path) is None
    small_disk("8m")
    assert "all is well" in haienv.ok("doctor").err
    haienv.ok("pack one")
    image = read_image(haienv.get("one").path)
    assert image is not None
    assert image.unpacked_bytes > 3_000_000


def test_a_failed_fsync_is_reported_as_a_full_disk(
    haienv: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    haienv.ok("create one --no_extend tool")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert haienv("config append one extra-search-dir /x --json").error["reason"] == "NO_ROOM"
        assert haienv("pack one --json").error["reason"] == "NO_ROOM"
    assert haienv.get("one").metadata.config.search_dirs == ()
    assert "all is well" in haienv.ok("doctor").err


def test_a_damaged_image_is_packed_again(haienv: Any) -> None:
    haienv.ok("create one --no_extend fast")
    before = images(haienv, "one")
    image = haienv.get("one").path / "image.tar.zst"
    image.chmod(0o644)
    image.write_bytes(b"x")
    assert images(haienv, "one") == before
    assert image.stat().st_size > 1


def test_only_owners_pack_their_layers(haienv: Any) -> None:
    haienv.as_user("bob").ok("create base --no_extend fast --visibility public")
    ann = haienv.as_user("ann")
    ann.ok("create top --extend 'base[bob]' plain")
    result = ann.ok("pack top")
    assert "base[bob] belongs to another user and has no image" in result.err
    assert images(ann, "top")["base[bob]"] == ""
    assert ann("pack 'base[bob]'").code == 4
    haienv.as_user("bob").ok("pack base")
    assert images(haienv.as_user("ann"), "top")["base[bob]"]


def test_projects_in_place_cannot_be_packed(haienv: Any, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "here"\nversion = "1"\n')
    haienv.ok("create one --no_extend")
    path = haienv.get("one").path
    record = path / "layer.toml"
    record.chmod(0o644)
    record.write_text(
        record.read_text().replace('backend = "uv"', 'backend = "uv"\neditable = ["/x"]')
    )
    result = haienv("pack one --json")
    assert result.code == 1
    assert "projects in place" in result.error["message"]


def test_an_image_is_removed_alone_or_with_its_layer(haienv: Any) -> None:
    haienv.ok("create one --no_extend fast")
    haienv.ok("pack one")
    path = haienv.get("one").path
    haienv.ok("pack one --remove")
    assert read_image(path) is None
    assert not (path / "image.tar.zst").exists()
    haienv.ok("pack one")
    haienv.ok("remove one --yes")
    assert not path.exists()


@pytest.mark.parametrize("name", ["image.tar.zst", "image.toml.01234567"])
def test_doctor_deletes_incomplete_images(haienv: Any, name: str) -> None:
    haienv.ok("create one --no_extend")
    leftover = haienv.get("one").path / (name if name.endswith("zst") else f".{name}")
    leftover.touch()
    (found,) = haienv("doctor --json").json
    assert found["path"] == str(leftover)
    haienv.ok("doctor --fix")
    assert not leftover.exists()
