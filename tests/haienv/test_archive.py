"""Archives, recipes and legacy databases: export, import, and refusal of damaged or malicious files."""

from __future__ import annotations

import io
import os
import pickle
import re
import sqlite3
import subprocess
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from haienv.archive import write_archive
from haienv.legacy_db import read_rows

VERSIONS = "import fast, tool; print(fast.VERSION, tool.VERSION)"


def test_an_archive_makes_the_same_environment(haienv: Any, tmp_path: Path) -> None:
    haienv.ok("create one --no_extend fast==1.0 tool --extra-environment A=b --description good")
    file = tmp_path / "one.tar.gz"
    haienv.ok("export one", file)
    other = haienv.as_user("bob")
    other.ok("import", file, "two")
    assert other.run("two", VERSIONS) == "1.0 1.0"
    assert other.get("two").metadata.config.variables == {"A": "b"}
    assert other.get("two").layer.lock_hash == other.ok("info 'one[ann]' --json").json["lock_hash"]
    tool = other.get("two").path / "bin" / "tool"
    assert subprocess.run([tool, "fast"], capture_output=True, text=True).stdout == "fast 1.0\n"
    other.ok("verify two")


def test_an_archive_contains_all_files_of_a_wheel(
    haienv: Any, tmp_path: Path, make_wheel: Any
) -> None:
    """Data files, headers, modules without source, and a file with a name that haienv uses."""
    files = ("odd-1.0.data/data/share/jupyter/k.json", "odd-1.0.data/headers/odd.h",
             "odd-1.0.data/data/lib/libodd.so", "odd/bare.pyc", "odd/pip")  # fmt: skip
    wheel = make_wheel("odd", "1.0", more=dict.fromkeys(files, "x"))
    haienv.ok("create one --no_extend odd --verify --find-links", wheel.parent)
    haienv.ok("export one", tmp_path / "one.tar")
    haienv.ok("import", tmp_path / "one.tar", "two")
    first, second = (
        {
            str(path.relative_to(haienv.get(name).path))
            for path in haienv.get(name).path.glob("*/**/*")
        }
        for name in ("one", "two")
    )
    assert len([each for each in first if "odd" in each or "k.json" in each]) > len(files)
    assert second == first


def test_hard_links_are_archived_as_files(haienv: Any, tmp_path: Path, make_wheel: Any) -> None:
    haienv.monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    make_wheel("twin", "1.0", more={"twin/a.txt": "same", "twin/b.txt": "same"})
    haienv.ok("create one --no_extend twin")
    first, second = (haienv.get("one").sites[0] / "twin" / name for name in ("a.txt", "b.txt"))
    second.unlink()
    second.hardlink_to(first)
    haienv.ok("export one", tmp_path / "one.tar")
    haienv.ok("import", tmp_path / "one.tar", "two")
    assert (haienv.get("two").sites[0] / "twin" / "b.txt").read_text() == "same"


def test_a_layer_finds_its_parent_by_its_lock(haienv: Any, tmp_path: Path) -> None:
    haienv.ok("create base --no_extend fast==1.0 --visibility public")
    haienv.ok("create top --extend base tool")
    haienv.ok("export top", tmp_path / "top.tar")
    haienv.ok("rename base renamed")
    haienv.ok("import", tmp_path / "top.tar", "again")
    assert haienv.run("again", VERSIONS) == "1.0 1.0"
    haienv.ok("remove top again renamed --yes --force")
    refused = haienv("import", tmp_path / "top.tar", "again")
    assert refused.code == 1
    assert "which is not here" in refused.err


def test_a_lock_hash_that_another_user_claims_is_not_preferred(haienv: Any, tmp_path: Path) -> None:
    haienv.ok("create base --no_extend fast==1.0 --visibility public")
    haienv.ok("create top --extend base tool")
    haienv.ok("export top", tmp_path / "top.tar")
    lock_hash = haienv.get("base").layer.lock_hash
    for owner in ("aaa", "zoe"):
        other = haienv.as_user(owner)
        other.ok("create base --no_extend plain --visibility public")
        record = other.get("base").path / "layer.toml"
        claimed = re.sub("lock_hash = .*", f'lock_hash = "{lock_hash}"', record.read_text())
        record.chmod(0o644)
        record.write_text(claimed)
    ann = haienv.as_user("ann")
    ann.ok("import", tmp_path / "top.tar", "again")
    assert ann.get("again").layer.parents[0].owner == "ann"
    ann.ok("rename base renamed")
    ann.ok("import", tmp_path / "top.tar", "third")
    assert ann.get("third").layer.parents[0].owner == "ann"


def test_a_recipe_is_a_lock(haienv: Any, tmp_path: Path) -> None:
    haienv.ok("create one --no_extend fast==1.0 tool")
    haienv.ok("export one --recipe", tmp_path / "one.txt")
    haienv.ok("create two --no_extend --from", tmp_path / "one.txt")
    assert haienv.get("two").layer.lock_hash == haienv.get("one").layer.lock_hash
    haienv.ok("create base --no_extend plain")
    refused = haienv("create three --extend base --from", tmp_path / "one.txt")
    assert refused.code == 1
    assert "another parent" in refused.err


def _changed(source: Path, target: Path, change: Callable[[tarfile.TarInfo], None]) -> None:
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for info in old.getmembers():
            file = old.extractfile(info)
            change(info)
            new.addfile(info, file if info.isreg() else None)


def _leaves_the_layer(info: tarfile.TarInfo) -> None:
    if info.name.endswith("fast/__init__.py"):
        info.name = "site-packages/../../../../../out.py"


def _absolute(info: tarfile.TarInfo) -> None:
    if info.name.endswith("fast/__init__.py"):
        info.name = "/tmp/out.py"


def _outside_site_packages(info: tarfile.TarInfo) -> None:
    if info.name.endswith("fast/__init__.py"):
        info.name = "lib/out.py"


def _links(info: tarfile.TarInfo) -> None:
    if info.name.endswith("fast/__init__.py"):
        info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0


def _device(info: tarfile.TarInfo) -> None:
    if info.name.endswith("fast/__init__.py"):
        info.type, info.size = tarfile.CHRTYPE, 0


def _differs_from_record(info: tarfile.TarInfo) -> None:
    if info.name.endswith("fast/__init__.py"):
        info.name = "site-packages/fast/other.py"


def _replaces_generated_file(info: tarfile.TarInfo) -> None:
    if info.name.endswith("fast/__init__.py"):
        info.name = "prefix/image.toml"


def _no_lock(info: tarfile.TarInfo) -> None:
    if info.name == "lock.txt":
        info.name = "site-packages/lock.txt"


@pytest.mark.parametrize(
    "change",
    [
        _leaves_the_layer,
        _absolute,
        _outside_site_packages,
        _links,
        _device,
        _differs_from_record,
        _replaces_generated_file,
        _no_lock,
    ],
)
def test_malicious_archives_are_refused(haienv: Any, tmp_path: Path, change: Any) -> None:
    haienv.ok("create one --no_extend fast==1.0")
    haienv.ok("export one", tmp_path / "one.tar")
    _changed(tmp_path / "one.tar", tmp_path / "bad.tar", change)
    before = sorted(map(str, tmp_path.rglob("*")))
    assert haienv("import", tmp_path / "bad.tar", "two").code in (1, 2)
    assert sorted(map(str, tmp_path.rglob("*"))) == before
    assert haienv.ok("list --names").out == "one\n"


def test_sparse_files_are_refused(haienv: Any, tmp_path: Path) -> None:
    """A small sparse archive could expand to gigabytes."""
    haienv.ok("create one --no_extend fast==1.0")
    haienv.ok("export one", tmp_path / "one.tar")
    with tarfile.open(tmp_path / "one.tar", "a") as archive:
        info = tarfile.TarInfo("site-packages/fast-1.0.dist-info/holes")
        info.pax_headers = {"GNU.sparse.size": str(1 << 20), "GNU.sparse.map": "0,1"}
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    result = haienv("import", tmp_path / "one.tar", "two")
    assert result.code == 1
    assert "holes" in result.err


@pytest.mark.parametrize("libc", ["", " ", "glibc", "glibc 1.²", f"glibc {'9' * 5000}"])
def test_unknown_names_of_the_c_library_are_accepted(
    haienv: Any, tmp_path: Path, libc: str
) -> None:
    haienv.ok("create one --no_extend fast==1.0")
    haienv.ok("export one", tmp_path / "one.tar")
    with tarfile.open(tmp_path / "one.tar") as old, tarfile.open(tmp_path / "two.tar", "w") as new:
        for info in old.getmembers():
            data = old.extractfile(info).read()  # type: ignore[union-attr]
            if info.name == "layer.toml":
                data = re.sub(r'libc = ".*"', f'libc = "{libc}"', data.decode()).encode()
            info.size = len(data)
            new.addfile(info, io.BytesIO(data))
    result = haienv("import", tmp_path / "two.tar", "two")
    assert (result.code == 0) == ("9" not in libc), result.err


def test_concurrent_exports_leave_one_complete_file(haienv: Any, tmp_path: Path) -> None:
    haienv.ok("create one --no_extend fast==1.0 tool")
    environment = haienv.get("one")
    with ThreadPoolExecutor(4) as pool:
        writing = [
            pool.submit(write_archive, environment, tmp_path / "one.tar.gz") for _ in range(4)
        ]
        for each in writing:
            each.result()
    haienv.ok("import", tmp_path / "one.tar.gz", "two")
    assert [path.name for path in tmp_path.glob("*one*")] == ["one.tar.gz"]


def test_a_file_that_is_not_an_archive_is_refused(haienv: Any, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_text("not a tar")
    result = haienv("import", tmp_path / "x.tar", "two")
    assert (result.code, "not an archive of haienv" in result.err) == (2, True)


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.xz"])
def test_a_damaged_archive_is_refused_and_leaves_nothing(
    haienv: Any, tmp_path: Path, kind: str
) -> None:
    haienv.ok("create one --no_extend fast==1.0 tool")
    haienv.ok("export one", tmp_path / f"one.{kind}")
    complete = (tmp_path / f"one.{kind}").read_bytes()
    bad = tmp_path / f"bad.{kind}"
    for part in range(0, len(complete), len(complete) // 12):
        flipped = bytes([complete[part] ^ 0x55])
        for damaged in (complete[:part], complete[:part] + flipped + complete[part + 1 :]):
            bad.write_bytes(damaged)
            if (code := haienv("import", bad, "two").code) == 0:
                haienv.ok(
                    "verify two"
                )  # data that are not in the lock, such as a description, may differ
                haienv.ok("remove two --yes")
            assert code in (0, 1, 2)
            assert not any((haienv.home.user_dir / ".building").iterdir())


def legacy_database(path: Path, rows: dict[str, Any], table: str = "haienv") -> Path:
    """A database as HAI's haienv wrote it: SQLite with keys and pickled configurations."""
    with sqlite3.connect(path) as database:
        database.execute(f"create table {table} (key text primary key, value blob)")
        database.executemany(f"insert into {table} values (?, ?)", rows.items())
    database.close()
    return path


def pickled(protocol: int, **facts: Any) -> bytes:
    """Return a pickled object of a class that is not installed here."""
    import sys

    module = ModuleType("haienv_client_model")
    kind = type("HaienvConfig", (), {"__module__": module.__name__})
    module.HaienvConfig = kind  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    value = kind()
    value.__dict__.update(facts)
    try:
        return pickle.dumps(value, protocol)
    finally:
        del sys.modules[module.__name__]


@pytest.mark.parametrize("protocol", range(6))
def test_rows_of_a_legacy_database_are_read(tmp_path: Path, protocol: int) -> None:
    row = pickled(protocol, path="/old/x_0", extend="True", extend_env="202111", py="3.8",
                  extra_search_dir=["/a b"], extra_search_bin_dir=[], extra_environment=["K=v:w=x"])  # fmt: skip
    (found,) = read_rows(legacy_database(tmp_path / "venv.db", {"x": row}))
    assert (found.name, found.path, found.python, found.fault) == ("x", "/old/x_0", "3.8", "")
    assert (found.search_dirs, found.variables) == (("/a b",), ("K=v:w=x",))


class _Evil:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


@pytest.mark.parametrize(
    "call",
    [
        pytest.param((os.system, "touch /tmp/haienv-evil"), id="os.system"),
        pytest.param((eval, "1+1"), id="eval"),
        pytest.param((getattr, "", "format"), id="getattr"),
        pytest.param((io.open, "/tmp/haienv-evil", "w"), id="open"),
    ],
)
def test_rows_that_call_functions_are_refused(tmp_path: Path, call: Any) -> None:
    rows = {"evil": pickle.dumps(_Evil(*call)), "inside": pickled(2, path=_Evil(*call)),
            "junk": b"\x80\x04junk", "text": "no"}  # fmt: skip
    found = read_rows(legacy_database(tmp_path / "venv.db", rows))
    assert all(each.fault for each in found)
    assert not Path("/tmp/haienv-evil").exists()


def test_a_legacy_environment_is_extended_in_its_directory(haienv: Any, tmp_path: Path) -> None:
    subprocess.run(["uv", "venv", "-q", tmp_path / "x_0"], check=True)
    subprocess.run(
        ["uv", "pip", "install", "-q", "-p", tmp_path / "x_0", "tool", "fast==1.0"], check=True
    )
    rows = {
        "x": pickled(4, path=str(tmp_path / "x_0"), py="3.11", extra_environment=["K=v w"]),
        "gone": pickled(4, path="/nowhere", py="3.11"),
    }
    result = haienv("import --json", legacy_database(tmp_path / "venv.db", rows))
    assert result.code == 1
    assert {e["name"]: bool(e["error"]) for e in result.json["environments"]} == {
        "x": False,
        "gone": True,
    }
    assert haienv.run("x", VERSIONS) == "1.0 1.0"
    assert haienv.get("x").metadata.config.variables == {"K": "v w"}
