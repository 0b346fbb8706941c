"""Layers: a child sees its parents, contains only what they lack, and never changes them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NOT_SEALED = ("used",)  # a file of the registry, not of a package
VERSIONS = "import {0}; print({0}.VERSION, {0}.__file__)"


def test_a_child_sees_its_parents_and_contains_only_the_difference(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast==1.0 tool")
    haienv.ok("create middle --extend base plain==1.0")
    haienv.ok("create top --extend middle app")
    assert haienv.run("top", "import app, tool, fast, plain; print(fast.VERSION)") == "1.0"
    assert haienv.ok("freeze top --own --json").json == {"app": "1.0"}
    assert set(haienv.ok("freeze top --json").json) == {"app", "tool", "fast", "plain"}
    assert [p.name for p in haienv.get("top").layer.parents] == ["middle", "base"]


def test_nothing_in_a_child_changes_a_parent(haienv: Any, digest: Callable[..., Any]) -> None:
    haienv.ok("create base --no_extend fast==1.0 plain==1.0")
    before = digest(haienv.get("base").path)
    haienv.ok("create top --extend base plain==2.0 tool")
    haienv.ok("install top app")
    haienv.ok("uninstall top tool")
    haienv.ok("upgrade top")
    assert haienv.run("top", "import plain; print(plain.VERSION)") == "2.0"
    assert haienv.run("base", "import plain; print(plain.VERSION)") == "1.0"
    haienv.ok("remove top --yes")
    assert digest(haienv.get("base").path) == before


def test_a_parents_program_sees_the_childs_packages(haienv: Any) -> None:
    haienv.ok("create base --no_extend tool fast==1.0")
    haienv.ok("create middle --extend base")
    haienv.ok("create top --extend middle plain fast==2.0")
    tool = haienv.get("top").path / "bin" / "tool"
    done = subprocess.run([tool, "plain", "fast"], capture_output=True, text=True, check=True)
    assert done.stdout == "plain 2.0\nfast 2.0\n"


def test_programs_named_like_those_of_uv_are_kept(
    haienv: Any, tmp_path: Path, make_wheel: Callable[..., Path]
) -> None:
    haienv.monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    name = "activate-global-completion"  # argcomplete has a program of this name
    make_wheel("complete", "1.0", more={f"complete-1.0.data/scripts/{name}": "#!python\nprint()\n"})
    haienv.ok("create base --no_extend complete")
    haienv.ok("verify base")
    haienv.ok("create top --extend base")
    for each in ("base", "top"):
        bin_ = haienv.get(each).path / "bin"
        assert {path.name for path in bin_.glob("*activate*")} == {name}
    haienv.ok("export base", tmp_path / "base.tar")
    haienv.ok("import", tmp_path / "base.tar", "again")


def test_pth_files_of_a_parent_are_processed(haienv: Any, tmp_path: Path) -> None:
    project = tmp_path / "proj"
    (project / "src").mkdir(parents=True)
    (project / "src" / "inplace.py").write_text("VERSION = 'here'\n")
    haienv.ok("create base --no_extend fast")
    site = haienv.get("base").sites[0]
    site.chmod(0o755)
    (site / "project.pth").write_text(f"{project / 'src'}\n")
    haienv.ok("create top --extend base")
    assert haienv.run("top", VERSIONS.format("inplace")).startswith("here")


def test_requirements_of_compiled_parent_packages_are_not_shadowed(haienv: Any) -> None:
    haienv.ok("create base --no_extend torchy fast==1.0")
    refused = haienv("create top --extend base fast==2.0 --json")
    assert refused.code == 1
    assert refused.error["reason"] == "REFUSED"
    assert "torchy" in refused.error["message"]
    assert haienv.ok("list --json").json["own"][0]["name"] == "base"
    haienv.ok("create top --extend base fast==2.0 --force")
    assert haienv.run("top", "import fast; print(fast.VERSION)") == "2.0"


def test_a_requirement_that_conflicts_with_the_parent_needs_force(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast==1.0")
    refused = haienv("create top --extend base greedy")
    assert refused.code == 1
    assert "--force" in refused.err
    haienv.ok("create top --extend base greedy --force")
    assert haienv.run("top", "import fast; print(fast.VERSION)") == "2.0"


def test_a_major_version_matches_every_minor_version(haienv: Any) -> None:
    haienv.ok("create base --no_extend -p 3")
    haienv.ok("create top --extend base -p 3")
    major, minor = haienv.get("top").layer.minor_version.split(".")
    assert haienv(f"create other --extend base -p {major}.{minor[:1]}").code == 1  # 3.1 is not 3.11


def test_another_minor_version_is_refused(haienv: Any, other_python: str) -> None:
    haienv.ok("create base --no_extend fast")
    refused = haienv(f"create top --extend base -p {other_python}")
    assert refused.code == 1
    assert "cannot extend base" in refused.err
    version = subprocess.run([other_python, "-V"], capture_output=True, text=True).stdout.split()[1]
    minor = ".".join(version.split(".")[:2])
    assert "cannot extend" in haienv(f"create top --extend base -p {minor}").err
    assert haienv.ok("list --names").out == "base\n"


def test_the_root_may_be_mounted_elsewhere(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast==1.0 tool")
    haienv.ok("create top --extend base plain")
    elsewhere = haienv.home.root.with_name("else where")
    shutil.move(haienv.home.root, elsewhere)
    haienv.monkeypatch.setenv("HAIENV_HOME", str(elsewhere))
    bin_ = elsewhere / "ann" / "top" / "current" / "bin"
    done = subprocess.run([bin_ / "tool", "plain", "fast"], capture_output=True, text=True)
    assert done.stdout == "plain 2.0\nfast 1.0\n"
    assert haienv.ok("list --json").json["own"][1]["state"] == "READY"


def test_parent_packages_that_no_index_has_are_used(
    haienv: Any, make_wheel: Callable[..., Path]
) -> None:
    ours = make_wheel("fast", "1.5+lab")
    haienv.ok("create base --no_extend", f"fast @ {ours.as_uri()}")
    haienv.ok("create top --extend base app")
    assert haienv.run("top", "import fast; print(fast.VERSION)") == "1.5+lab"
    assert haienv.ok("freeze top --own --json").json == {"app": "1.0", "tool": "1.0"}


def test_a_python_outside_haienv_can_be_extended(haienv: Any, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run(["uv", "venv", "-q", venv], check=True)
    subprocess.run(["uv", "pip", "install", "-q", "-p", venv, "tool", "fast==1.0"], check=True)
    haienv.monkeypatch.setenv("VIRTUAL_ENV", str(venv))
    haienv.ok("create top app plain")
    assert haienv.ok("freeze top --own --json").json == {"app": "1.0", "plain": "2.0"}
    done = subprocess.run([haienv.get("top").path / "bin" / "tool", "app", "fast"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout == "app 1.0\nfast 1.0\n"


def test_a_program_that_is_not_python_is_refused(haienv: Any, tmp_path: Path) -> None:
    assert haienv("create one -p /bin/true").code == 1
    greeting = tmp_path / "python"
    greeting.write_text(f'#!/bin/sh\necho hello\nexec {sys.executable} "$@"\n')
    greeting.chmod(0o755)
    haienv.ok("create one fast -p", greeting)


def test_upgrade_replaces_a_deleted_external_python(haienv: Any, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for venv, version in ((old, "1.0"), (new, "2.0")):
        subprocess.run(["uv", "venv", "-q", venv], check=True)
        subprocess.run(["uv", "pip", "install", "-q", "-p", venv, f"fast=={version}"], check=True)
    haienv.ok("create one plain -p", old / "bin" / "python")
    shutil.rmtree(old)
    assert haienv("upgrade one -p 3.11").code == 2
    haienv.ok("upgrade one -p", new / "bin" / "python")
    assert haienv.run("one", "import fast, plain; print(fast.VERSION)") == "2.0"


@pytest.mark.parametrize("folder", ["a:b", "全　角"])
def test_an_unsupported_path_of_python_is_refused(haienv: Any, tmp_path: Path, folder: str) -> None:
    subprocess.run(["uv", "venv", "-q", tmp_path / folder], check=True)
    result = haienv("create top fast -p", tmp_path / folder / "bin" / "python")
    assert (result.code, "meanwhile" in result.err) == (2, False), result.err
    assert not list((haienv.home.user_dir / ".layers").glob("*"))


def test_the_same_contents_are_one_layer_and_files_are_shared(
    haienv: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_LINK_MODE", "hardlink")  # shared blocks are not visible in stats
    haienv.ok("create one --no_extend fast tool")
    haienv.ok("create two --no_extend fast tool")
    haienv.ok("create three --no_extend fast")
    one, two, three = (haienv.get(name) for name in ("one", "two", "three"))
    assert one.path == two.path
    file = "fast/__init__.py"
    assert (one.sites[0] / file).stat().st_ino == (three.sites[0] / file).stat().st_ino
    haienv.ok("remove one --yes")
    assert haienv.run("two", "import fast, tool; print('still')") == "still"


def test_files_of_a_layer_are_read_only(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast")
    path = haienv.get("base").path
    files = [p for p in path.rglob("*") if p.is_file() and not p.is_symlink()]
    assert [p for p in files if p.name not in NOT_SEALED and p.stat().st_mode & 0o222] == []
    assert haienv.get("base").sites[0].stat().st_mode & 0o222 == 0


@pytest.mark.parametrize(
    "line", ["create top --extend base --dry-run app", "install base app --dry-run"]
)
def test_a_dry_run_prints_the_plan_and_changes_nothing(
    haienv: Any, line: str, digest: Callable[..., Any]
) -> None:
    haienv.ok("create base --no_extend fast==1.0")
    before = digest(haienv.home.root)
    plan = {step["name"]: step["action"] for step in haienv.ok(f"{line} --json").json["plan"]}
    assert plan["app"] == "install"
    assert digest(haienv.home.root) == before


def test_the_hint_mentions_parents_only_if_they_conflict(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast==1.0")
    for command, parents in (
        ("create top --extend base greedy --json", True),
        ("create top --extend base plain==9 --json", False),
        ("create top --no_extend plain==9 --json", False),
        ("create top --no_extend greedy fast==1.0 --json", False),
    ):
        error = haienv(command).error
        assert "No solution found" in error["message"]
        assert ("--force" in error["hint"]) is parents
        assert ("request other versions" in error["hint"]) is not parents


def test_list_shows_broken_and_info_shows_why(haienv: Any) -> None:
    haienv.ok("create one --no_extend")
    python = haienv.get("one").path / "bin" / "python"
    python.parent.chmod(0o755)
    python.unlink()
    listed = haienv.ok("list")
    assert max(map(len, listed.out.splitlines())) < 100
    assert " broken " in listed.out
    assert "`haienv info one` says why it is broken" in listed.err
    assert f"its Python {python} cannot be run" in haienv.ok("info one").out


def test_a_forced_version_stays_until_the_parent_changes(haienv: Any) -> None:
    haienv.ok("create base --no_extend torchy fast==1.0")
    haienv.ok("create top --extend base greedy --force")
    haienv.ok("install top plain")
    assert haienv.run("top", "import fast, plain; print(fast.VERSION)") == "2.0"
    assert haienv("upgrade top").code == 1
    haienv.ok("upgrade top --force")


def test_environments_visible_to_others_contain_bytecode(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast --visibility public")
    assert [*haienv.get("base").sites[0].glob("fast/__pycache__/*.pyc")]
    haienv.ok("create mine --no_extend fast tool")
    assert not [*haienv.get("mine").sites[0].glob("fast/__pycache__/*.pyc")]
    haienv.ok("config set mine visibility public")
    assert [*haienv.get("mine").sites[0].glob("fast/__pycache__/*.pyc")]
    haienv.ok("verify mine")


def test_an_environment_moves_to_another_python(haienv: Any, other_python: str) -> None:
    haienv.ok("create one --no_extend fast==1.0")
    before = haienv.run("one", "import sys; print(sys.version_info[:2])")
    haienv.ok(f"upgrade one -p {other_python}")
    program = "import sys, fast; print(sys.version_info[:2], fast.VERSION)"
    after = haienv.run("one", program)
    assert not after.startswith(before)
    assert after.endswith("1.0")
    haienv.ok("upgrade one --rollback")
    assert haienv.run("one", program) == f"{before} 1.0"
