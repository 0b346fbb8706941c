"""Marks of needed layers: a private child, which is hidden from its parent's owner, still protects its parent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from haienv.layers import gc
from haienv.store.layout import Home
from haienv.store.transaction import move_to_trash


def hide(haienv: Any, user: str) -> None:
    """Hide a user's environments, as if they were private and had another uid."""
    for path in (haienv.home.root / user).iterdir():
        if not path.name.startswith("."):
            (path / "env.toml").rename(path / ".hidden")


def show(haienv: Any, user: str) -> None:
    for path in (haienv.home.root / user).glob("*/.hidden"):
        path.rename(path.with_name("env.toml"))


@pytest.fixture
def find_children(haienv: Any) -> tuple[Any, Any]:
    """ann, who owns base, and bob, who extends it with an environment hidden from her."""
    haienv.ok("create base --no_extend fast==1.0 --visibility public")
    bob = haienv.as_user("bob")
    bob.ok("create top --extend base[ann] plain")
    hide(haienv, "bob")
    return haienv.as_user("ann"), bob


def test_a_hidden_child_protects_its_parent(find_children: tuple[Any, Any]) -> None:
    ann, bob = find_children
    layer = ann.get("base").path
    refused = ann("remove base --yes --json")
    assert (refused.code, refused.error["reason"]) == (1, "REFUSED")
    assert "one of bob's" in refused.error["message"]
    ann.ok("remove base --yes --force")
    ann.ok("gc --days 0 --yes")
    ann.ok("doctor --fix")
    assert layer.is_dir()
    show(ann, "bob")
    bob = ann.as_user("bob")
    assert bob.run("top", "import fast; print(fast.VERSION)") == "1.0"
    bob.ok("remove top --yes")
    ann.as_user("ann").ok("gc --days 0 --yes")
    assert not layer.exists()


def test_layers_of_hidden_parents_stay_readable_for_children(
    find_children: tuple[Any, Any],
) -> None:
    ann, bob = find_children
    base = ann.get("base")
    ann.ok("clone base twin")
    result = ann.ok("config set base visibility private")
    assert "bob extended them" in result.err
    ann.ok("config set twin visibility private")
    assert (base.directory.stat().st_mode & 0o777, base.path.stat().st_mode & 0o777) == (
        0o700,
        0o755,
    )
    ann.ok("doctor")
    show(ann, "bob")
    bob = ann.as_user("bob")
    bob.ok("remove top --yes")
    ann = ann.as_user("ann")
    ann.ok("config append base tags x")
    assert base.path.stat().st_mode & 0o777 == 0o700


def test_an_upgrade_of_the_parent_keeps_layers_that_others_extend(
    find_children: tuple[Any, Any],
) -> None:
    ann, _ = find_children
    layer = ann.get("base").path
    ann.ok("install base tool")
    ann.ok("install base plain")
    ann.ok("gc --days 0 --yes")
    assert layer.is_dir()


def test_doctor_repairs_missing_and_stale_marks(find_children: tuple[Any, Any]) -> None:
    ann, _ = find_children
    show(ann, "bob")
    bob = ann.as_user("bob")
    (mark,) = (bob.home.user_dir / ".uses" / "ann").iterdir()
    mark.rename(mark.with_name("0" * 24))
    assert len(bob("doctor --json").json) == 2
    bob.ok("doctor --fix")
    assert list((bob.home.user_dir / ".uses" / "ann").iterdir()) == [mark]
    assert mark.stat().st_mode & 0o004


def test_a_child_created_during_the_removal_of_its_parent(
    haienv: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner has read the marks and trashes the layer; then a child marks it."""
    haienv.ok("create base --no_extend fast==1.0 --visibility public")
    layer = haienv.get("base").path
    real = move_to_trash

    def late(home: Home, path: Path) -> Path:
        trashed = real(home, path)
        if path == layer:
            mark = home.root / "bob" / ".uses" / "ann" / layer.name
            mark.parent.mkdir(parents=True)
            mark.touch()
        return trashed

    monkeypatch.setattr(gc, "move_to_trash", late)
    haienv.ok("remove base --yes")
    assert (layer / "bin" / "python").exists()


def test_a_parent_removed_during_the_creation_of_its_child(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast==1.0 --visibility public")
    layer = haienv.get("base").path
    bob = haienv.as_user("bob")
    bob.ok("create top --extend base[ann]")
    layer.rename(layer.with_name("away"))
    assert bob("clone top two").code == 1  # its parent is missing, so it is broken
    layer.with_name("away").rename(layer)
    top = bob.get("top").path
    from haienv import operations
    from haienv.errors import Busy

    layer.rename(layer.with_name("away"))
    with pytest.raises(Busy):
        operations._register_dependencies(bob.home, top.name)


AS = """
import os, sys
os.setgroups([]), os.setgid({0}), os.setuid({0})
from haienv.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
PACKAGES = ":".join(path for path in sys.path if not path.startswith(sys.base_prefix))
SYSTEM = shutil.which("python3", path="/usr/bin")
SAME = SYSTEM and subprocess.run(
    [SYSTEM, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True
).stdout.split() == [str(part) for part in sys.version_info[:2]]


@pytest.mark.skipif(
    os.geteuid() != 0 or not SAME, reason="needs root, and a Python that all may run"
)
def test_with_real_accounts(haienv: Any, wheelhouse: Path, tmp_path: Path) -> None:
    """Two uids with a strict umask share a root: both use public environments, and change only their own."""
    root = tmp_path / "shared"
    root.mkdir()
    root.chmod(0o1777)
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    for folder in (wheelhouse, *wheelhouse.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o015)

    def run(uid: int, user: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        more = {
            "HAIENV_HOME": str(root),
            "HAIENV_USER": user,
            "HOME": str(tmp_path / user),
            "PYTHONPATH": PACKAGES,
            "UV_CACHE_DIR": str(root / user / ".cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return subprocess.run([SYSTEM, "-c", AS.format(uid), *arguments], env={**os.environ, **more},
                              cwd="/", capture_output=True, text=True, umask=0o077)  # fmt: skip

    def ok(uid: int, user: str, *arguments: str) -> str:
        done = run(uid, user, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    ok(20001, "ann", "create", "base", "--no_extend", "fast==1.0", "tool", "--visibility", "public")
    ok(20001, "ann", "create", "secret", "--no_extend")
    ok(20002, "bob", "create", "top", "--extend", "base[ann]", "plain")
    program = "import fast, plain; print(fast.VERSION)"
    assert ok(20002, "bob", "run", "top", "--", "python", "-c", program) == "1.0\n"
    assert ok(20002, "bob", "list", "--names").split() == ["top", "base[ann]"]
    assert run(20002, "bob", "info", "secret[ann]").returncode == 3
    for arguments in ("remove base --yes --force", "install base plain", "create evil --no_extend"):
        assert run(20002, "ann", *arguments.split()).returncode == 4, arguments
    refused = run(20001, "ann", "remove", "base", "--yes")
    assert refused.returncode == 1
    assert "one of bob's" in refused.stderr
    refused = run(20001, "ann", "config", "set", "base", "visibility", "group", "--group", "root")
    assert (refused.returncode, "not in group root" in refused.stderr) == (4, True)
    assert ok(20001, "ann", "list", "--names", "-u", "ann").split() == ["base", "secret"]
    ok(20001, "ann", "doctor")
    next(
        path for path in (root / "ann" / ".layers").iterdir() if (path / "bin" / "tool").exists()
    ).chmod(0o700)
    assert "is missing or hidden" in run(20002, "bob", "info", "top").stdout
    (root / "carl").mkdir()
    (root / "carl").chmod(0o777)
    os.chown(root / "carl", 20002, -1)
    refused = run(20003, "carl", "create", "mine", "--no_extend")
    assert refused.returncode == 4
    assert "was made by uid 20002" in refused.stderr
    assert not any((root / "carl" / ".building").iterdir())
