"""Environments are read as they lie there, and whatever somebody else puts in their place harms nobody."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hai_backend.domain.catalog.dataset import Visibility
from hai_backend.domain.environment import Environment, EnvironmentName, EnvironmentState
from hai_backend.environments import read
from hai_backend.environments.read import ReadResult, Unreadable, read_environment, scan
from tests.support.environments import as_parent, layer_of, make_environment

READY, BROKEN = EnvironmentState.READY, EnvironmentState.BROKEN
TORCH = EnvironmentName("ada", "torch")


def anybody(owner: str, uid: int) -> bool:
    return True


def read_one(root: Path, called: EnvironmentName = TORCH) -> ReadResult:
    return read_environment(root, called, anybody)


def found(root: Path, called: EnvironmentName = TORCH) -> Environment:
    environment = read_one(root, called)
    assert isinstance(environment, Environment)
    return environment


def test_everything_that_its_files_say(tmp_path: Path) -> None:
    make_environment(tmp_path, "system", "base", visibility="public")
    parent = as_parent(tmp_path, "system", "base")
    lock_hash = make_environment(
        tmp_path,
        "ada",
        "torch",
        parents=[parent],
        visibility="group",
        group="vision",
        description="for all of us",
        deprecated="torch3",
    )
    environment = found(tmp_path)
    assert (environment.state, environment.message) == (READY, "")
    assert (environment.visibility, environment.user_group) == (Visibility.GROUP, "vision")
    assert (environment.parent, environment.lock_hash) == ("base[system]", lock_hash)
    assert (environment.layer, environment.packages) == (lock_hash[:24], 3)
    assert (environment.description, environment.deprecated) == ("for all of us", "torch3")
    assert environment.created_at == environment.updated_at > 0


def test_all_are_listed_by_owner_and_name_and_nothing_of_haienvs_own(tmp_path: Path) -> None:
    for owner, name in (("bob", "b"), ("ada", "z"), ("ada", "a")):
        make_environment(tmp_path, owner, name)
    (tmp_path / "ada" / ".building" / "x").mkdir(parents=True)
    (tmp_path / "ada" / "empty").mkdir()
    (tmp_path / "uv.toml").write_text("")
    assert [str(e.full_name) for e in scan(tmp_path, anybody)] == ["a[ada]", "z[ada]", "b[bob]"]


@pytest.mark.parametrize("path", ["", "ada", "ada/torch", "ada/torch/env.toml"])
def test_what_is_not_there_is_none(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    make_environment(root, "ada", "torch")
    path_found = root / path
    shutil.rmtree(path_found) if path_found.is_dir() else path_found.unlink()
    assert read_one(root) is None
    assert [*scan(root, anybody)] == []


def replaced(path: str, text: str | bytes) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        target = (
            root / "ada" / path.replace("LAYER", f".layers/{layer_of(root, 'ada', 'torch').name}")
        )
        target.unlink(missing_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)

    return change


def linked(path: str, to: str) -> Callable[[Path], None]:
    """`to` may name the root."""

    def change(root: Path) -> None:
        target = (
            root / "ada" / path.replace("LAYER", f".layers/{layer_of(root, 'ada', 'torch').name}")
        )
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink()
        target.symlink_to(to.format(root=root))

    return change


def piped(path: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        (root / "ada" / path).unlink()
        os.mkfifo(root / "ada" / path)

    return change


def without(path: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        shutil.rmtree(layer_of(root, "ada", "torch") / path)

    return change


LABEL = "schema = 1\ncreated = 2026-11-21T23:50:00Z\n"
HOSTILE = [
    pytest.param(replaced("torch/env.toml", "schema = 2\n"), "schema 2", id="a newer schema"),
    pytest.param(replaced("torch/env.toml", "schema = true\n"), "schema True", id="no number"),
    pytest.param(replaced("torch/env.toml", "no toml"), "is not TOML", id="no TOML"),
    pytest.param(replaced("torch/env.toml", b"\xff"), "not UTF-8", id="no text"),
    pytest.param(replaced("torch/env.toml", "a" * 300_000), "more than", id="huge"),
    pytest.param(
        replaced("torch/env.toml", "a = " + "[" * 100_000 + "]" * 100_000), "is not TOML", id="deep"
    ),
    pytest.param(replaced("torch/env.toml", f"a = {'9' * 9000}"), "is not TOML", id="endless"),
    pytest.param(
        replaced("torch/env.toml", LABEL + "a." * 4000 + "a = 1"), "many parts", id="a long key"
    ),
    pytest.param(
        replaced("torch/env.toml", LABEL + 'visibility = "all"'), "visibility", id="no visibility"
    ),
    pytest.param(replaced("torch/env.toml", LABEL + "group = 3"), "group is 3", id="other type"),
    pytest.param(
        replaced("torch/env.toml", LABEL + f'description = "{"x" * 5000}"'),
        "at most 4096",
        id="an endless text",
    ),
    pytest.param(
        replaced("torch/env.toml", LABEL + '[config]\nbin_dirs = ["bin"]'),
        "bin_dirs",
        id="relative",
    ),
    pytest.param(
        replaced("torch/env.toml", LABEL + '[config]\nbin_dirs = ["/a:/b"]'),
        "colon",
        id="two paths",
    ),
    pytest.param(
        replaced("torch/env.toml", LABEL + '[config.variables]\n"A=B" = "x"'), "A=B", id="no name"
    ),
    pytest.param(
        replaced("torch/env.toml", LABEL + '[config.variables]\nA = "x\\ny"'), "A", id="two lines"
    ),
    pytest.param(linked("torch/env.toml", "/etc/hostname"), None, id="label is a link"),
    pytest.param(linked("torch/current", "../../bob/.layers/" + "0" * 24), "current", id="escapes"),
    pytest.param(
        linked("torch/current", "{root}/ada/.layers/" + "0" * 24), "current", id="absolute"
    ),
    pytest.param(linked("torch/current", "../.layers/" + "0" * 24), "incomplete", id="no layer"),
    pytest.param(linked("torch/current", "../.layers/" + "g" * 24), "current", id="no hash"),
    pytest.param(replaced("torch/current", "x"), "not a link", id="current is a file"),
    pytest.param(linked("LAYER", "/"), "incomplete", id="layer is a link"),
    pytest.param(
        linked("LAYER/layer.toml", "/etc/passwd"), "incomplete", id="description is a link"
    ),
    pytest.param(replaced("LAYER/layer.toml", "schema = 1"), "lock_hash", id="nothing in it"),
    pytest.param(without("bin"), "incomplete", id="no programs"),
    pytest.param(replaced("LAYER/lock.txt", "x"), "lock.txt does not match", id="another lock"),
    pytest.param(linked("LAYER/lock.txt", "/etc/hostname"), "lock.txt", id="a link for a lock"),
    pytest.param(linked("torch", "{root}/bob/secret"), None, id="somebody else's environment"),
    pytest.param(linked(".layers", "{root}/bob/.layers"), "incomplete", id="others' layers"),
    pytest.param(piped("torch/env.toml"), "not a file", id="a pipe, which would block"),
]


@pytest.mark.parametrize(("change", "why"), HOSTILE)
def test_what_is_not_as_the_layout_says_is_broken_or_not_there(
    tmp_path: Path, change: Callable[[Path], None], why: str | None
) -> None:
    make_environment(tmp_path, "ada", "torch", visibility="public")
    make_environment(tmp_path, "bob", "secret")
    change(tmp_path)
    environment = read_one(tmp_path)
    if why is None:
        assert environment is None
    else:
        assert isinstance(environment, Environment)
        assert environment.state is BROKEN
        assert why in environment.message
    listed = {str(e.full_name) for e in scan(tmp_path, anybody)}
    assert listed == {"secret[bob]"} | ({"torch[ada]"} if why else set())


def test_who_has_endless_labels_keeps_no_list_waiting(tmp_path: Path) -> None:
    for number in range(20):
        make_environment(tmp_path, "ada", f"e{number:02}")
        with (tmp_path / "ada" / f"e{number:02}" / "env.toml").open("a") as label:
            label.writelines("#" + "x" * 998 + "\n" for _ in range(250))
    make_environment(tmp_path, "bob", "b")
    *of_ada, of_bob = scan(tmp_path, anybody)
    told = [isinstance(each, Environment) for each in of_ada]
    assert (told, len(told)) == (sorted(told, reverse=True), 20)
    assert 0 < sum(told) < 10
    assert of_bob == found(tmp_path, EnvironmentName("bob", "b"))
    assert found(tmp_path, EnvironmentName("ada", "e19")).state is READY


def test_as_much_as_people_write_is_read(tmp_path: Path) -> None:
    packages_requested = [f"p{number}" for number in range(3000)]
    make_environment(tmp_path, "ada", "torch", facts={"wanted": packages_requested})
    assert found(tmp_path).state is READY


def test_of_a_flood_only_so_many_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "MAX_PER_USER", 3)
    for number in range(5):
        make_environment(tmp_path, "eve", f"e{number}")
    make_environment(tmp_path, "ada", "torch")
    owners = [e.full_name.owner for e in scan(tmp_path, anybody)]
    assert owners.count("ada") == 1
    assert 1 <= owners.count("eve") <= 3


def test_a_user_who_is_a_link_to_another_is_nobody(tmp_path: Path) -> None:
    make_environment(tmp_path, "ada", "torch")
    (tmp_path / "eve").symlink_to("ada")
    assert read_one(tmp_path, EnvironmentName("eve", "torch")) is None
    assert [e.full_name.owner for e in scan(tmp_path, anybody)] == ["ada"]


def test_a_directory_under_anothers_name_is_broken(tmp_path: Path) -> None:
    make_environment(tmp_path, "ada", "torch", visibility="public")
    environment = read_environment(tmp_path, TORCH, lambda owner, uid: False)
    assert isinstance(environment, Environment)
    assert environment.state is BROKEN
    assert "which is not that of ada" in environment.message


def test_a_child_whose_parent_is_gone_is_broken(tmp_path: Path) -> None:
    make_environment(tmp_path, "system", "base")
    make_environment(tmp_path, "ada", "torch", parents=[as_parent(tmp_path, "system", "base")])
    shutil.rmtree(tmp_path / "system")
    assert "base[system] was deleted" in found(tmp_path).message


@pytest.mark.parametrize("path", ["ada", "ada/torch", "ada/.layers"])
def test_what_may_not_be_read_is_neither_broken_nor_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """As root nothing is unreadable, so the refusal comes from a stand-in."""
    make_environment(tmp_path, "ada", "torch")
    real, refused = os.open, path.rpartition("/")[2]

    def refusing(name: str, *rest: object, **more: object) -> int:
        if name == refused:
            raise PermissionError(13, "Permission denied", name)
        return real(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refusing)
    assert read_one(tmp_path) == Unreadable(TORCH)
    assert [*scan(tmp_path, anybody)] == ([] if path == "ada" else [Unreadable(TORCH)])


def test_listing_executes_nothing(tmp_path: Path) -> None:
    """Programs and import hooks of an environment would leave a trace here."""
    make_environment(tmp_path, "eve", "trap", visibility="public")
    layer, trace = layer_of(tmp_path, "eve", "trap"), tmp_path / "trace"
    site = layer / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (site / "x.pth").write_text(f"import pathlib; pathlib.Path({str(trace)!r}).touch()\n")
    (layer / "bin" / "python").unlink()
    (layer / "bin" / "python").write_text(f"#!/bin/sh\ntouch {trace}\n")
    (layer / "bin" / "python").chmod(0o755)
    assert [e.full_name.name for e in scan(tmp_path, anybody)] == ["trap"]
    assert not trace.exists()
