"""Environments as haienv makes them, made without haienv: texts, links, and a bin/python that links to this Python."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w
import zstandard

_CREATED = "2026-11-21T23:50:00Z"


def lock_of(*lines: str) -> str:
    """Return the text of a lock file with these lines."""
    return "\n".join(("# haienv lock 1", "# python 3.11", *lines)) + "\n"


def layer_of(root: Path, owner: str, name: str) -> Path:
    """Return the directory of the current layer of an environment."""
    return (root / owner / name / "current").resolve()


def make_environment(
    root: Path,
    owner: str,
    name: str,
    *,
    lock: str = "",
    parents: list[dict[str, str]] | None = None,
    config: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    **metadata: str,
) -> str:
    """Make or replace an environment, and return its lock hash. `facts` override the usual values of layer.toml."""
    text = lock or lock_of(f"# of {name}")
    lock_hash = hashlib.sha256(text.encode()).hexdigest()
    layer = root / owner / ".layers" / lock_hash[:24]
    if not layer.exists():
        _write_layer(
            layer, text, {"lock_hash": lock_hash, "parents": parents or [], **(facts or {})}
        )
    _write_metadata(root / owner / name, config or {}, metadata)
    _link_current(root / owner / name, layer)
    return lock_hash


def as_parent(root: Path, owner: str, name: str) -> dict[str, str]:
    """Return how the children of an environment refer to it."""
    layer = layer_of(root, owner, name)
    lock_hash = hashlib.sha256((layer / "lock.txt").read_bytes()).hexdigest()
    return {"name": name, "owner": owner, "layer": layer.name, "lock_hash": lock_hash}


def make_image(layer: Path, members: Iterable[tarfile.TarInfo | tuple[str, bytes]]) -> str:
    """Pack these members as the image of a layer, and return the image's SHA-256. A TarInfo is added without data."""
    packed, size, files = io.BytesIO(), 0, 0
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for member in members:
            info, data = _member(member)
            size, files = size + len(data), files + 1
            archive.addfile(info, io.BytesIO(data))
    image = zstandard.compress(packed.getvalue())
    facts = {"schema": 1, "sha256": hashlib.sha256(image).hexdigest(), "size_bytes": len(image)}
    (layer / "image.tar.zst").write_bytes(image)
    text = tomli_w.dumps({**facts, "unpacked_bytes": size, "files": files})
    (layer / "image.toml").write_text(text)
    return str(facts["sha256"])


def _member(member: tarfile.TarInfo | tuple[str, bytes]) -> tuple[tarfile.TarInfo, bytes]:
    if isinstance(member, tarfile.TarInfo):
        return member, b""
    info = tarfile.TarInfo(member[0])
    info.size = len(member[1])
    return info, member[1]


def _write_layer(layer: Path, lock: str, facts: Mapping[str, Any]) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    table = {
        "schema": 1,
        "python": version,
        "interpreter": sys.executable,
        "wanted": ["pandas>=2"],
        "packages": 3,
        "size_bytes": 123,
        **facts,
    }
    (layer / "bin").mkdir(parents=True)
    for program in ("python", "python3"):
        (layer / "bin" / program).symlink_to(os.path.realpath(sys.executable))
    (layer / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    (layer / "lock.txt").write_text(lock)
    (layer / "layer.toml").write_text(tomli_w.dumps(table))


def _write_metadata(
    directory: Path, config: Mapping[str, Any], metadata: Mapping[str, str]
) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    head = f"schema = 1\ncreated = {_CREATED}\nupdated = {_CREATED}\n"
    (directory / "env.toml").write_text(head + tomli_w.dumps({**metadata, "config": dict(config)}))


def _link_current(directory: Path, layer: Path) -> None:
    link = directory / "current"
    link.unlink(missing_ok=True)
    link.symlink_to(f"../.layers/{layer.name}")


def fake_haienv(path: Path, body: str) -> str:
    """Write a program that replaces haienv, and return its path. `body` is Python code; `words` has the arguments."""
    lines = (
        f"#!{sys.executable}",
        "import os, sys",
        "from pathlib import Path",
        f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})",
        "words = sys.argv[1:]",
        body,
    )
    path.write_text("\n".join(lines) + "\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return str(path)


BUILDER = """
from tests.support.environments import make_environment
root, user = Path(os.environ["HAIENV_HOME"]), os.environ["HAIENV_USER"]
given = dict(word.partition("=")[::2] for word in words[2:])
if words[0] == "remove":
    import shutil
    shutil.rmtree(root / user / words[1])
    sys.exit(0)
if words[0] == "rename":
    (root / user / words[1]).rename(root / user / words[2])
    sys.exit(0)
print("building", words[1])
wheels = sorted(p.name for p in Path(given["--find-links"]).iterdir())
print("wheels", *wheels)
make_environment(root, user, words[1], lock=Path(given["--from"]).read_text(),
                 visibility=given["--visibility"] if "--visibility" in given else "private")
"""
"""A haienv that makes what it is asked for."""
