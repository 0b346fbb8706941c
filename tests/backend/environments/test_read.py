"""The server reads environments from their files, and files of hostile users do no harm."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hai_backend.domain.catalog.dataset import Visibility
from hai_backend.domain.environment import Environment, EnvironmentName, EnvironmentState
from hai_backend.environments import read
from hai_backend.environments.read import (
    ReadResult,
    Unreadable,
    read_environment,
    scan_environments,
)
from tests.support.environments import as_parent, layer_of, make_environment

READY, BROKEN = EnvironmentState.READY, EnvironmentState.BROKEN
TORCH = EnvironmentName("ada", "torch")


def accept_any_owner(owner: str, uid: int) -> bool:
    return True


def read_one(root: Path, full_name: EnvironmentName = TORCH) -> ReadResult:
    return read_environment(root, full_name, accept_any_owner)


def read_ready(root: Path, full_name: EnvironmentName = TORCH) -> Environment:
    environment = read_one(root, full_name)
    assert isinstance(environment, Environment)
    return environment


def test_all_properties_are_read_from_the_files(tmp_path: Path) -> None:
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
    environment = read_ready(tmp_path)
    assert (environment.state, environment.message) == (READY, "")
    assert (environment.visibility, environment.user_group) == (Visibility.GROUP, "vision")
    assert (environment.parent, environment.lock_hash) == ("base[system]", lock_hash)
    assert (environment.layer, environment.packages) == (lock_hash[:24], 3)
    assert (environment.description, environment.deprecated) == ("for all of us", "torch3")
    assert environment.created_at == environment.updated_at > 0


def test_environments_are_listed_by_owner_and_name_without_files_of_haienv(tmp_path: Path) -> None:
    for owner, name in (("bob", "b"), ("ada", "z"), ("ada", "a")):
        make_environment(tmp_path, owner, name)
    (tmp_path / "ada" / ".building" / "x").mkdir(parents=True)
    (tmp_path / "ada" / "empty").mkdir()
    (tmp_path / "uv.toml").write_text("")
    assert [str(e.full_name) for e in scan_environments(tmp_path, accept_any_owner)] == [
        "a[ada]",
        "z[ada]",
        "b[bob]",
    ]


@pytest.mark.parametrize("path", ["", "ada", "ada/torch", "ada/torch/env.toml"])
def test_a_missing_environment_is_none(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    make_environment(root, "ada", "torch")
    path_found = root / path
    shutil.rmtree(path_found) if path_found.is_dir() else path_found.unlink()
    assert read_one(root) is None
    assert [*scan_environments(root, accept_any_owner)] == []


def replace_file(path: str, text: str | bytes) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        target = (
            root / "ada" / path.replace("LAYER", f".layers/{layer_of(root, 'ada', 'torch').name}")
        )
        target.unlink(missing_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)

    return change


def replace_by_link(path: str, to: str) -> Callable[[Path], None]:
    """Replace a path by a link. `to` may contain the root."""

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


def replace_by_pipe(path: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        (root / "ada" / path).unlink()
        os.mkfifo(root / "ada" / path)

    return change


def remove_from_layer(path: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        shutil.rmtree(layer_of(root, "ada", "torch") / path)

    return change


LABEL = "schema = 1\ncreated = 2026-11-21T23:50:00Z\n"
HOSTILE = [
    pytest.param(replace_file("torch/env.toml", "schema = 2\n"), "schema 2", id="a newer schema"),
    pytest.param(replace_file("torch/env.toml", "schema = true\n"), "schema True", id="no number"),
    pytest.param(replace_file("torch/env.toml", "no toml"), "is not TOML", id="no TOML"),
    pytest.param(replace_file("torch/env.toml", b"\xff"), "not UTF-8", id="no text"),
    pytest.param(replace_file("torch/env.toml", "a" * 300_000), "more than", id="huge"),
    pytest.param(
        replace_file("torch/env.toml", "a = " + "[" * 100_000 + "]" * 100_000),
        "is not TOML",
        id="deep",
    ),
    pytest.param(replace_file("torch/env.toml", f"a = {'9' * 9000}"), "is not TOML", id="endless"),
    pytest.param(
        replace_file("torch/env.toml", LABEL + "a." * 4000 + "a = 1"), "many parts", id="a long key"
    ),
    pytest.param(
        replace_file("torch/env.toml", LABEL + 'visibility = "all"'),
        "visibility",
        id="no visibility",
    ),
    pytest.param(
        replace_file("torch/env.toml", LABEL + "group = 3"), "group is 3", id="other type"
    ),
    pytest.param(
        replace_file("torch/env.toml", LABEL + f'description = "{"x" * 5000}"'),
        "at most 4096",
        id="an endless text",
    ),
    pytest.param(
        replace_file("torch/env.toml", LABEL + '[config]\nbin_dirs = ["bin"]'),
        "bin_dirs",
        id="relative",
    ),
    pytest.param(
        replace_file("torch/env.toml", LABEL + '[config]\nbin_dirs = ["/a:/b"]'),
        "colon",
        id="two paths",
    ),
    pytest.param(
        replace_file("torch/env.toml", LABEL + '[config.variables]\n"A=B" = "x"'),
        "A=B",
        id="no name",
    ),
    pytest.param(
        replace_file("torch/env.toml", LABEL + '[config.variables]\nA = "x\\ny"'),
        "A",
        id="two lines",
    ),
    pytest.param(replace_by_link("torch/env.toml", "/etc/hostname"), None, id="label is a link"),
    pytest.param(
        replace_by_link("torch/current", "../../bob/.layers/" + "0" * 24), "current", id="escapes"
    ),
    pytest.param(
        replace_by_link("torch/current", "{root}/ada/.layers/" + "0" * 24), "current", id="absolute"
    ),
    pytest.param(
        replace_by_link("torch/current", "../.layers/" + "0" * 24), "incomplete", id="no layer"
    ),
    pytest.param(
        replace_by_link("torch/current", "../.layers/" + "g" * 24), "current", id="no hash"
    ),
    pytest.param(replace_file("torch/current", "x"), "not a link", id="current is a file"),
    pytest.param(replace_by_link("LAYER", "/"), "incomplete", id="layer is a link"),
    pytest.param(
        replace_by_link("LAYER/layer.toml", "/etc/passwd"), "incomplete", id="description is a link"
    ),
    pytest.param(replace_file("LAYER/layer.toml", "schema = 1"), "lock_hash", id="nothing in it"),
    pytest.param(remove_from_layer("bin"), "incomplete", id="no programs"),
    pytest.param(replace_file("LAYER/lock.txt", "x"), "lock.txt does not match", id="another lock"),
    pytest.param(
        replace_by_link("LAYER/lock.txt", "/etc/hostname"), "lock.txt", id="a link for a lock"
    ),
    pytest.param(
        replace_by_link("torch", "{root}/bob/secret"), None, id="somebody else's environment"
    ),
    pytest.param(
        replace_by_link(".layers", "{root}/bob/.layers"), "incomplete", id="others' layers"
    ),
    pytest.param(replace_by_pipe("torch/env.toml"), "not a file", id="a pipe, which would block"),
]


@pytest.mark.parametrize(("change", "why"), HOSTILE)
def test_an_environment_that_does_not_match_the_layout_is_broken_or_missing(
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
    listed = {str(e.full_name) for e in scan_environments(tmp_path, accept_any_owner)}
    assert listed == {"secret[bob]"} | ({"torch[ada]"} if why else set())


def test_a_user_with_large_records_does_not_delay_lists(tmp_path: Path) -> None:
    for number in range(20):
        make_environment(tmp_path, "ada", f"e{number:02}")
        with (tmp_path / "ada" / f"e{number:02}" / "env.toml").open("a") as label:
            label.writelines("#" + "x" * 998 + "\n" for _ in range(250))
    make_environment(tmp_path, "bob", "b")
    *of_ada, of_bob = scan_environments(tmp_path, accept_any_owner)
    was_read = [isinstance(each, Environment) for each in of_ada]
    assert (was_read, len(was_read)) == (sorted(was_read, reverse=True), 20)
    assert 0 < sum(was_read) < 10
    assert of_bob == read_ready(tmp_path, EnvironmentName("bob", "b"))
    assert read_ready(tmp_path, EnvironmentName("ada", "e19")).state is READY


def test_long_descriptions_are_read(tmp_path: Path) -> None:
    packages_requested = [f"p{number}" for number in range(3000)]
    make_environment(tmp_path, "ada", "torch", facts={"wanted": packages_requested})
    assert read_ready(tmp_path).state is READY


def test_the_number_of_listed_environments_per_user_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "MAX_PER_USER", 3)
    for number in range(5):
        make_environment(tmp_path, "eve", f"e{number}")
    make_environment(tmp_path, "ada", "torch")
    owners = [e.full_name.owner for e in scan_environments(tmp_path, accept_any_owner)]
    assert owners.count("ada") == 1
    assert 1 <= owners.count("eve") <= 3


def test_a_user_directory_that_is_a_link_is_ignored(tmp_path: Path) -> None:
    make_environment(tmp_path, "ada", "torch")
    (tmp_path / "eve").symlink_to("ada")
    assert read_one(tmp_path, EnvironmentName("eve", "torch")) is None
    assert [e.full_name.owner for e in scan_environments(tmp_path, accept_any_owner)] == ["ada"]


def test_an_environment_in_a_directory_of_another_uid_is_broken(tmp_path: Path) -> None:
    make_environment(tmp_path, "ada", "torch", visibility="public")
    environment = read_environment(tmp_path, TORCH, lambda owner, uid: False)
    assert isinstance(environment, Environment)
    assert environment.state is BROKEN
    assert "which is not that of ada" in environment.message


def test_a_child_without_its_parent_is_broken(tmp_path: Path) -> None:
    make_environment(tmp_path, "system", "base")
    make_environment(tmp_path, "ada", "torch", parents=[as_parent(tmp_path, "system", "base")])
    shutil.rmtree(tmp_path / "system")
    assert "base[system] was deleted" in read_ready(tmp_path).message


@pytest.mark.parametrize("path", ["ada", "ada/torch", "ada/.layers"])
def test_an_unreadable_environment_is_neither_broken_nor_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Root can read every file, so a replacement of os.open refuses."""
    make_environment(tmp_path, "ada", "torch")
    real, refused = os.open, path.rpartition("/")[2]

    def refusing(name: str, *arguments: object, **keywords: object) -> int:
        if name == refused:
            raise PermissionError(13, "Permission denied", name)
        return real(name, *arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refusing)
    assert read_one(tmp_path) == Unreadable(TORCH)
    assert [*scan_environments(tmp_path, accept_any_owner)] == (
        [] if path == "ada" else [Unreadable(TORCH)]
    )


def test_listing_executes_nothing(tmp_path: Path) -> None:
    """Programs and import hooks of an environment would create a file."""
    make_environment(tmp_path, "eve", "trap", visibility="public")
    layer, trace = layer_of(tmp_path, "eve", "trap"), tmp_path / "trace"
    site = layer / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (site / "x.pth").write_text(f"import pathlib; pathlib.Path({str(trace)!r}).touch()\n")
    (layer / "bin" / "python").unlink()
    (layer / "bin" / "python").write_text(f"#!/bin/sh\ntouch {trace}\n")
    (layer / "bin" / "python").chmod(0o755)
    assert [e.full_name.name for e in scan_environments(tmp_path, accept_any_owner)] == ["trap"]
    assert not trace.exists()
