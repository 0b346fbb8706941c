"""Operations that change environments: install, uninstall, upgrade, roll back, rename, clone, remove."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from haienv.activate.activation import compute_activation
from haienv.layers.base import find_running_python

NEWEST = "import fast; print(fast.VERSION)"


def test_install_keeps_versions_and_upgrade_changes_them(haienv: Any) -> None:
    haienv.ok("create one --no_extend fast==1.0")
    haienv.ok("install one tool")
    assert haienv.run("one", NEWEST) == "1.0"
    haienv.ok("install one 'fast>=1'")
    assert haienv.run("one", NEWEST) == "1.0"
    haienv.ok("upgrade one")
    assert haienv.run("one", NEWEST) == "2.0"
    haienv.ok("upgrade one --rollback")
    assert haienv.run("one", NEWEST) == "1.0"


def test_upgrade_prints_what_it_changes(haienv: Any) -> None:
    haienv.ok("create base --no_extend tool fast==1.0")
    haienv.ok("create top --extend base plain==1.0")
    assert haienv.ok("upgrade base").out == haienv.ok("upgrade top").out == "nothing to change\n"
    haienv.ok("install base 'fast>=1'")
    assert haienv.ok("upgrade base --dry-run").out == "replace  fast 1.0 -> 2.0\n"
    haienv.ok("upgrade base")
    plan = haienv.ok("upgrade top --json").json[
        "plan"
    ]  # on another base, the plan lists every package
    assert [(step["action"], step["name"]) for step in plan] == [("install", "plain")]


def test_requirements_with_several_markers_stay_together(haienv: Any, tmp_path: Path) -> None:
    lines = ["fast<2; python_version<'4'", "fast>=2; python_version>='4'", "plain"]
    haienv.ok("create one --no_extend", *lines)
    haienv.ok("install one tool")
    assert haienv.ok("freeze one --json").json == {"fast": "1.0", "plain": "2.0", "tool": "1.0"}
    haienv.ok("uninstall one plain")
    assert haienv.get("one").usable_layer.wanted == (*lines[:2], "tool")
    (tmp_path / "r.txt").write_text("\n".join(lines[:2]).replace("2", "1.5"))
    haienv.ok("install one --from", tmp_path / "r.txt")
    haienv.ok("install one tool")
    assert haienv.get("one").usable_layer.wanted == (
        "fast<1.5; python_version<'4'",
        "fast>=1.5; python_version>='4'",
        "tool",
    )
    assert haienv.ok("freeze one --json").json == {"fast": "1.0", "tool": "1.0"}
    haienv.ok("uninstall one FAST")
    assert haienv.get("one").usable_layer.wanted == ("tool",)


def test_uninstall_removes_unneeded_dependencies(haienv: Any) -> None:
    haienv.ok("create one --no_extend app plain")
    haienv.ok("uninstall one app")
    assert set(haienv.ok("freeze one --json").json) == {"plain"}


def test_a_package_of_a_parent_cannot_be_uninstalled(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast")
    haienv.ok("create top --extend base plain")
    refused = haienv("uninstall top fast")
    assert refused.code == 1
    assert "belongs to a parent" in refused.err


def test_upgrade_follows_the_parent(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast==1.0")
    haienv.ok("create top --extend base tool")
    haienv.ok("install base fast==2.0")
    assert haienv.run("top", NEWEST) == "1.0"
    assert haienv.ok("info top --json").json["parent_changed"]
    haienv.ok("upgrade top --keep-versions")
    assert haienv.run("top", NEWEST) == "2.0"
    assert not haienv.ok("info top --json").json["parent_changed"]


def test_an_environment_never_extends_itself(haienv: Any) -> None:
    """The name of a parent may become that of a child, or of a child's child."""
    haienv.ok("create base --no_extend fast")
    haienv.ok("create top --extend base tool")
    haienv.ok("create child --extend top plain")
    parents = haienv.get("top").layer.parents
    for name in ("top", "child"):
        haienv.ok("rename base spare")
        haienv.ok(f"rename {name} base")
        own = "base" if name == "top" else "top"
        haienv.ok(f"upgrade {own}")
        assert haienv.get(own).layer.parents == parents
        assert not haienv.ok(f"info {own} --json").json["parent_changed"]
        haienv.ok(f"rename base {name}")
        haienv.ok("rename spare base")


def test_upgrade_follows_the_name_of_the_parent(haienv: Any) -> None:
    """A parent is identified by its name, not by its packages."""
    haienv.ok("create base --no_extend fast==1.0 --extra-environment A=base")
    haienv.ok("clone base other")
    haienv.ok("config set other extra-environment A=other")
    for name in ("base", "other"):
        haienv.ok(f"create on-{name} --extend {name} tool --visibility private")
        result = haienv.ok(f"info on-{name} --json").json["parents"]
        assert result == [f"{name}[ann]"]
        assert compute_activation(haienv.home, haienv.get(f"on-{name}")).variables == {"A": name}
    haienv.ok("remove other --force --yes")
    haienv.ok("create other --no_extend fast==2.0")
    haienv.ok("upgrade on-other --keep-versions")
    assert haienv.run("on-other", NEWEST) == "2.0"


def test_upgrade_onto_a_hidden_parent_is_refused(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast --visibility public")
    haienv.ok("create top --extend base tool --visibility public")
    before = haienv.get("top").layer_id
    haienv.ok("remove base --force --yes")
    haienv.ok("create base --no_extend plain")
    assert "base[ann] is private" in haienv("upgrade top").err
    assert haienv.get("top").layer_id == before


def test_an_older_layer_stays_while_the_environment_changes(haienv: Any) -> None:
    haienv.ok("create one --no_extend fast==1.0")
    old = haienv.get("one").path
    haienv.ok("install one fast==2.0")
    assert old != haienv.get("one").path
    assert (old / "bin" / "python").exists()


def test_upgrade_replaces_a_missing_python(haienv: Any, tmp_path: Path) -> None:
    old, new = (tmp_path / name / "python3" for name in ("old", "new"))
    for each in (old, new):
        each.parent.mkdir()
        each.symlink_to(find_running_python())
    haienv.ok("create base --no_extend fast==1.0 -p", old)
    haienv.ok("create top --extend base plain==1.0")
    lock = haienv.ok("lock base").out
    old.unlink()
    assert not haienv.get("base").is_ready
    assert haienv.ok("lock base").out == lock
    assert haienv.ok("freeze top --json").json == {"fast": "1.0", "plain": "1.0"}
    assert haienv("install base tool").code == 1
    assert "upgrade base (-p PYTHON)" in haienv("doctor").out
    haienv.ok("upgrade base --keep-versions -p", new)
    haienv.ok("upgrade top --keep-versions")
    assert haienv.run("top", "import fast, plain; print(fast.VERSION, plain.VERSION)") == "1.0 1.0"


def test_upgrade_repairs_a_changed_python(haienv: Any, tmp_path: Path) -> None:
    python, another = tmp_path / "python3", tmp_path / "python3.2"
    python.symlink_to(find_running_python())
    another.write_text("#!/bin/sh\n")
    another.chmod(0o755)
    haienv.ok("create one --no_extend fast==1.0 -p", python)
    python.unlink()
    python.symlink_to(another)
    assert haienv.get("one").fault.endswith(f"{python} is 3.2 on this machine")
    haienv.ok("upgrade one --keep-versions -p", find_running_python())
    assert haienv.run("one", NEWEST) == "1.0"


@pytest.mark.parametrize(
    ("damage", "state"),
    [
        pytest.param(
            lambda lock: lock.write_text("x"), "READY", id="other text: lists do not look"
        ),
        pytest.param(lambda lock: lock.unlink(), "BROKEN", id="gone"),
    ],
)
def test_upgrade_repairs_a_damaged_lock(
    haienv: Any, damage: Callable[[Path], object], state: str
) -> None:
    haienv.ok("create base --no_extend tool")
    haienv.ok("create mine --extend base fast==1.0")
    lock = haienv.get("mine").path / "lock.txt"
    text = lock.read_bytes()
    lock.chmod(0o644)
    damage(lock)
    assert {e["state"] for e in haienv.ok("list --json").json["own"]} == {"READY", state}
    assert haienv.ok("info mine --json").json["state"] == "BROKEN"
    assert "lock.txt" in haienv("run mine -- true").err
    assert "lock.txt" in haienv("create child --extend mine").err
    assert "haienv upgrade mine" in haienv("doctor").out
    assert haienv("verify mine").code == 1
    haienv.ok("upgrade mine")
    assert lock.read_bytes() == text
    haienv.ok("verify mine")


def test_upgrade_repairs_a_missing_parent_layer(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast==1.0")
    haienv.ok("create top --extend base plain")
    missing = haienv.get("base").path
    haienv.ok("install base tool")
    shutil.move(missing, f"{missing}.away")
    assert not haienv.get("top").is_ready
    haienv.ok("upgrade top --keep-versions")
    assert haienv.run("top", "import fast, plain, tool; print(fast.VERSION)") == "1.0"


def test_rename_and_clone(haienv: Any) -> None:
    haienv.ok("create one --no_extend fast==1.0")
    haienv.ok("create top --extend one tool")
    haienv.ok("rename one other")
    haienv.ok("clone other copy")
    assert haienv.run("top", NEWEST) == "1.0"
    haienv.ok("install copy fast==2.0")
    assert haienv.run("other", NEWEST) == "1.0"
    assert haienv.ok("list --names").out.split() == ["copy", "other", "top"]
    assert haienv("rename other copy").code == 1


def test_current_names_take_precedence_over_legacy_names(haienv: Any) -> None:
    system = haienv.as_user("system")
    system.ok("create 202111 --no_extend tool --visibility public")
    ann = haienv.as_user("ann")
    assert ann.ok("freeze py3-202111 --json").json == {"tool": "1.0"}  # the name in HAI
    ann.ok("create py3-202111 --no_extend plain==1.0")
    assert ann.ok("freeze py3-202111 --json").json == {"plain": "1.0"}
    ann.ok("install py3-202111 fast==1.0")
    ann.ok("rename py3-202111 py311-202111")
    ann.ok("remove py311-202111 --yes")


def test_remove_refuses_environments_that_others_extend(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast --visibility public")
    bob = haienv.as_user("bob")
    bob.ok("create his --extend 'base[ann]' tool")
    haienv.as_user("ann")
    refused = haienv("remove base --yes")
    assert refused.code == 1
    assert "his[bob]" in refused.err
    haienv.ok("remove base --yes --force")
    assert bob.run("his", "import fast, tool; print('on')") == "on"
    assert bob.get("his").is_ready


def test_remove_accepts_the_same_environment_twice(haienv: Any) -> None:
    haienv.ok("create one --no_extend")
    haienv.ok("remove one 'one[ann]' --yes")
    assert haienv.ok("list --names").out == ""


def test_remove_requires_confirmation(haienv: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    haienv.ok("create one --no_extend")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert haienv("remove one").code == 2
    assert haienv.get("one").is_ready


@pytest.mark.parametrize(
    ("line", "code"),
    [
        pytest.param("create ../x --no_extend", 2, id="a name that climbs"),
        pytest.param("create .x --no_extend", 2, id="a name of ours"),
        pytest.param("create x/y --no_extend", 2, id="a name with a slash"),
        pytest.param("create 'x y' --no_extend", 2, id="a name with a blank"),
        pytest.param("info 'x[../../etc]'", 2, id="an owner that climbs"),
        pytest.param("info nothing", 3, id="no such environment"),
        pytest.param("create one --no_extend", 1, id="a name that is taken"),
        pytest.param("create two --no_extend 'no thing'", 2, id="not a requirement"),
        pytest.param("create two --no_extend nowhere-to-be-found", 1, id="no such package"),
        pytest.param("create two --extend nothing", 3, id="no such parent"),
        pytest.param("create two --no_extend --extra-environment PATH=x", 2, id="a variable of ours"),
        pytest.param("remove 'one[bob]' --yes", 3, id="somebody else's that is not there"),
        pytest.param("nonsense", 2, id="no such command"),
        pytest.param("list --nonsense", 2, id="no such option"),
    ],
)  # fmt: skip
def test_errors_have_exit_codes_and_change_nothing(haienv: Any, line: str, code: int) -> None:
    haienv.ok("create one --no_extend")
    result = haienv(line, "--json")
    assert result.code == code, result.err
    assert result.error["message"]
    assert haienv.ok("list --names").out == "one\n"
    assert [*(haienv.home.user_dir / ".building").iterdir()] == []


def test_an_unknown_command_is_reported_with_a_hint(haienv: Any) -> None:
    result = haienv("nonsense").err
    assert (
        result == "haienv: No such command 'nonsense'; hint: `haienv --help` shows how it is used\n"
    )


def test_environments_of_other_users_cannot_be_changed(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast --visibility public")
    bob = haienv.as_user("bob")
    for line in ("remove 'base[ann]' --yes", "install 'base[ann]' tool", "rename 'base[ann]' mine",
                 "config set 'base[ann]' description mine", "clone 'base[ann]' mine"):  # fmt: skip
        assert bob(line).code == 4, line


def test_metadata_that_could_not_be_read_is_not_written(haienv: Any) -> None:
    large = ["--extra-environment", f"A={'x' * 60_000}"]
    haienv.ok("create one --no_extend", *large)
    label = haienv.get("one").directory / "env.toml"
    text = label.read_text()
    more = [f"{name}={'x' * 60_000}" for name in "BCDEF"]
    for arguments in (["description", "x" * 5000], ["tags", "x" * 5000], ["extra-environment", *more],
                  ["extra-environment", f"B={'x' * 70_000}"], ["hook", "x " * 5000]):  # fmt: skip
        assert haienv("config set one", *arguments).code == 2, arguments[0]
        assert label.read_text() == text
    assert haienv("create two --no_extend --description", "x" * 5000).code == 2
    assert haienv.ok("list --names").out == "one\n"


def test_unreadable_metadata_is_not_overwritten(haienv: Any) -> None:
    haienv.ok("create one --no_extend --extra-environment A=b")
    label = haienv.get("one").directory / "env.toml"
    label.write_text(text := label.read_text() + "[half")
    refused = haienv("config set one description x")
    assert (refused.code, str(label) in refused.err, label.read_text()) == (1, True, text)
    label.write_text(text.removesuffix("[half"))
    haienv.ok("config set one description x")
    assert haienv.get("one").metadata.config.variables == {"A": "b"}


def test_history_lists_changes(haienv: Any) -> None:
    haienv.ok("create one --no_extend")
    first = haienv.get("one").layer_id
    haienv.ok("install one plain")
    haienv.ok("config set one description x")
    second = haienv.get("one").layer_id
    haienv.ok("rename one two")
    haienv.ok("remove two --yes")
    result = haienv.ok("history --json").json
    assert [(c["what"], c["name"], c["layer"]) for c in result] == [
        ("create", "one", first),
        ("switch", "one", second),
        ("configure", "one", second),
        ("rename to two", "one", second),
        ("remove", "two", ""),
    ]
    assert {c["uid"] for c in result} == {os.getuid()}
    assert haienv.ok("history two --json").json == result[-1:]
    path = haienv.home.user_dir / ".history"
    assert path.stat().st_mode & 0o777 == 0o600
    bad = [{**result[0], "time": 1}, {**result[0], "what": "\x1b[2J"}]
    lines = ["no line of ours", "[" * 100_000, *map(json.dumps, bad)]
    path.write_text("\n".join(lines) + "\n" + path.read_text())
    assert haienv.ok("history --json").json == result


def test_an_unwritable_history_is_ignored(haienv: Any, tmp_path: Path) -> None:
    haienv.ok("create one --no_extend")
    path = haienv.home.user_dir / ".history"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    haienv.ok("remove one --yes")
    assert not (tmp_path / "elsewhere").exists()
