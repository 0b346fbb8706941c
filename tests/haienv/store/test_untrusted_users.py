"""Files of hostile users are only read: they are never run or trusted, and cannot block a reader."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from haienv import get_envs
from haienv.activate.activation import compute_activation
from haienv.layers.installed import read_versions
from haienv.names import parse_reference
from haienv.store.layout import Home
from haienv.store.registry import find_by_reference

LABEL = 'schema = 1\nvisibility = "public"\n'
GOOD = "../.layers/" + "a" * 24


def write_environment(home: Path, label: str = LABEL, current: str = GOOD, layer: str = "") -> Path:
    """Write the files of an environment `trap` of mallory."""
    trap = home / "mallory" / "trap"
    trap.mkdir(parents=True)
    (trap / "env.toml").write_text(label)
    (trap / "current").symlink_to(current)
    layer_dir = home / "mallory" / ".layers" / ("a" * 24)
    (layer_dir / "bin").mkdir(parents=True)
    (layer_dir / "layer.toml").write_text(layer or LAYER)
    (layer_dir / "lock.txt").write_text("")
    (layer_dir / "bin" / "python").write_text("#!/bin/sh\necho EXECUTED > ../executed\n")
    (layer_dir / "bin" / "python").chmod(0o755)
    return trap


LAYER = f'schema = 1\nlock_hash = "{"0" * 64}"\npython = "3.11.7"\ninterpreter = "/bin/evil"\n'


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link(path: Path) -> None:
    secret = path.parent.parent.parent / "secret.toml"
    secret.write_text(LABEL)
    path.unlink()
    path.symlink_to(secret)


@pytest.mark.parametrize(
    ("label", "current", "layer"),
    [
        pytest.param("visibility = [", GOOD, "", id="not TOML"),
        pytest.param("[" * 100_000, GOOD, "", id="TOML that nests"),
        pytest.param(LABEL + f"x = {'9' * 5000}\n", GOOD, "", id="an endless number"),
        pytest.param(LABEL + "a." * 4000 + "a = 1\n", GOOD, "", id="a key of many parts"),
        pytest.param(LABEL, GOOD, LAYER + f"size_bytes = {'9' * 4000}\n", id="a size beyond all disks"),
        pytest.param(LABEL, GOOD, LAYER + "packages = -1\n", id="less than no packages"),
        pytest.param("visibility = 7\n", GOOD, "", id="a wrong type"),
        pytest.param('visibility = "all"\n', GOOD, "", id="a wrong word"),
        pytest.param(LABEL + "[config]\nsearch_dirs = ['../x']\n", GOOD, "", id="a relative directory"),
        pytest.param(LABEL + "[config]\nbin_dirs = ['/a:/b']\n", GOOD, "", id="two directories in one"),
        pytest.param(LABEL + "[config.variables]\nPATH = '/x'\n", GOOD, "", id="a variable of ours"),
        pytest.param(LABEL + "[config.variables]\n'A;id' = 'x'\n", GOOD, "", id="code as a name"),
        pytest.param(LABEL + '[config.variables]\nA = "x\\ny"\n', GOOD, "", id="two lines"),
        pytest.param(LABEL + 'description = "\\u001b[2J"\n', GOOD, "", id="an escape sequence"),
        pytest.param(LABEL + f'description = "{"x" * 300_000}"\n', GOOD, "", id="a huge file"),
        pytest.param("schema = 99\n" + LABEL[11:], GOOD, "", id="a newer schema"),
        pytest.param(LABEL, "/etc", "", id="a link elsewhere"),
        pytest.param(LABEL, "../../ann/.layers/" + "a" * 24, "", id="a link to another's layer"),
        pytest.param(LABEL, "../.layers/../../../etc", "", id="a link that climbs"),
        pytest.param(LABEL, GOOD, LAYER.replace("/bin/evil", "evil"), id="a relative interpreter"),
        pytest.param(LABEL, GOOD, LAYER.replace("3.11.7", "3.11/../.."), id="a version that climbs"),
        pytest.param(LABEL, GOOD, LAYER + "sites = ['x']\n", id="a relative site"),
        pytest.param(LABEL, GOOD, LAYER + 'platform = "linux-riscv64"\n', id="another kind of machine"),
        pytest.param(LABEL + "[config]\nhooks = [\"'\"]\n", GOOD, "", id="a hook that is no command"),
        pytest.param(LABEL, GOOD, LAYER + "parents = [1]\n", id="a parent that is none"),
        pytest.param(LABEL, GOOD, LAYER + '[[parents]]\nname="x"\nowner="../.."\nlayer="' + "a" * 24
                     + f'"\nlock_hash="{"0" * 64}"\n', id="a parent that climbs"),
    ],
)  # fmt: skip
def test_invalid_environments_are_broken_and_harmless(
    haienv: Any, label: str, current: str, layer: str
) -> None:
    haienv.ok("create mine --no_extend")
    write_environment(haienv.home.root, label, current, layer)
    assert haienv.ok("list --names").out == "mine\n"
    listed = haienv.ok("list --all --json").json["others"][0]
    assert (listed["name"], listed["owner"], listed["state"]) == ("trap", "mallory", "BROKEN")
    assert listed["message"].isprintable()
    assert haienv("run 'trap[mallory]' -- true").code == 1


@pytest.mark.parametrize("trick", [pipe, link])
@pytest.mark.parametrize("file", ["env.toml", "../.layers/" + "a" * 24 + "/layer.toml"])
def test_pipes_and_links_are_not_followed(
    haienv: Any, trick: Callable[[Path], None], file: str
) -> None:
    trap = write_environment(haienv.home.root)
    trick(trap / file)
    assert haienv.ok("list --all --json").json["others"][0]["state"] == "BROKEN"


READ_ONLY_COMMANDS = (
    "list --all",
    "list -u mallory --json",
    "info 'trap[mallory]'",
    "info trap --disk",
    "freeze 'trap[mallory]'",
    "lock 'trap[mallory]'",
    "which 'trap[mallory]' python",
    "config show 'trap[mallory]'",
    "diff 'trap[mallory]' mine",
    "doctor",
    "gc --yes --days 0",
)


def test_read_only_commands_never_run_code_of_others(haienv: Any, tmp_path: Path) -> None:
    """A working environment with traps in its Python, modules, programs and hooks."""
    executed = tmp_path / "sprung"
    mallory = haienv.as_user("mallory")
    mallory.ok("create trap --no_extend tool --visibility public --hook true")
    layer = mallory.get("trap").path
    label = mallory.home.user_dir / "trap" / "env.toml"
    label.write_text(label.read_text().replace('"true"', f'"touch {executed}"'))
    for folder in (layer / "bin", layer / "lib/python3.11/site-packages"):
        folder.chmod(0o755)
    for name, code in (("evil.pth", f"import os; os.mkdir({str(executed)!r})\n"),
                       ("sitecustomize.py", f"open({str(executed)!r}, 'w')\n")):  # fmt: skip
        (layer / "lib/python3.11/site-packages" / name).write_text(code)
    for name in ("python", "tool"):
        (layer / "bin" / name).unlink()
        (layer / "bin" / name).write_text(f"#!/bin/sh\ntouch '{executed}'\n")
        (layer / "bin" / name).chmod(0o755)
    ann = haienv.as_user("ann")
    ann.ok("create mine --no_extend")
    for line in READ_ONLY_COMMANDS:
        ann.ok(line)
        assert not executed.exists(), line
    assert ann("verify 'trap[mallory]'").code == 1  # the added files are reported
    here = Home.from_environ()
    assert compute_activation(here, find_by_reference(here, parse_reference("trap"))).prompt
    assert [row[0] for row in get_envs("mallory")] == ["mallory"]
    assert not executed.exists()
    subprocess.run([layer / "bin" / "tool"], check=True)  # the trap works
    assert executed.exists()


def test_name_and_owner_come_from_the_directory(haienv: Any) -> None:
    write_environment(haienv.home.root, LABEL + 'name = "base"\nowner = "system"\n')
    assert haienv.ok("list --json").json["others"][0]["owner"] == "mallory"
    assert haienv.ok("list --json").json["system"] == []


def test_the_metadata_read_per_user_is_limited(haienv: Any) -> None:
    mallory = haienv.as_user("mallory")
    mallory.ok("create e00 --no_extend --visibility public")
    for number in range(1, 20):
        mallory.ok(f"clone e00 e{number:02}")
    for label in (haienv.home.root / "mallory").glob("e*/env.toml"):
        label.write_text(label.read_text() + ("#" + "x" * 998 + "\n") * 250)
    assert len(mallory.ok("list --json").json["own"]) == 20
    ann = haienv.as_user("ann")
    states = [each["state"] for each in ann.ok("list -a --json").json["others"]]
    assert (len(states), states) == (20, sorted(states, reverse=True))
    assert 0 < states.count("READY") < 10
    assert "not shown (-a shows them)" in ann.ok("list").err
    ann.ok("info 'e19[mallory]'")


@pytest.mark.parametrize(("link", "to"), [("carl", "ann"), ("ann/linked", "one")])
def test_linked_directories_are_not_found_by_name(haienv: Any, link: str, to: str) -> None:
    haienv.ok("create one --no_extend")
    (haienv.home.root / link).symlink_to(to)
    meant = "one[carl]" if link == "carl" else "linked[ann]"
    assert haienv(f"info '{meant}'").code == 3
    assert haienv(f"create two --extend '{meant}'").code == 3


def test_linked_directories_are_not_listed(haienv: Any, tmp_path: Path) -> None:
    write_environment(tmp_path / "elsewhere")
    haienv.home.root.mkdir()
    (haienv.home.root / "mallory").symlink_to(tmp_path / "elsewhere" / "mallory")
    (haienv.home.root / "eve").mkdir()
    (haienv.home.root / "eve" / "trap").symlink_to(tmp_path / "elsewhere" / "mallory" / "trap")
    assert haienv.ok("list --all --json").json["others"] == []


def test_a_name_of_several_users_is_ambiguous(haienv: Any) -> None:
    for user in ("bob", "eve"):
        haienv.as_user(user).ok("create shared --no_extend --visibility public")
    ann = haienv.as_user("ann")
    refused = ann("info shared")
    assert refused.code == 2
    assert "shared[bob], shared[eve]" in refused.err
    ann.as_user("system").ok("create shared --no_extend --visibility public")
    assert haienv.as_user("ann").ok("info shared --json").json["owner"] == "system"


def test_modes_follow_the_visibility(haienv: Any) -> None:
    haienv.ok("create one --no_extend fast")
    one = haienv.get("one")
    assert (one.directory.stat().st_mode & 0o777, one.path.stat().st_mode & 0o777) == (0o700, 0o700)
    haienv.ok("config set one visibility public")
    assert (one.directory.stat().st_mode & 0o777, one.path.stat().st_mode & 0o777) == (0o755, 0o755)
    haienv.ok("clone one two")
    haienv.ok("config set one visibility private")
    assert (one.directory.stat().st_mode & 0o777, one.path.stat().st_mode & 0o777) == (0o700, 0o755)
    haienv.ok("config clear two visibility")
    assert one.path.stat().st_mode & 0o777 == 0o700
    one.path.chmod(0o777)
    assert haienv("doctor").code == 1
    haienv.ok("doctor --fix")
    assert one.path.stat().st_mode & 0o777 == 0o700


def test_a_strict_umask_does_not_hide_public_environments(haienv: Any) -> None:
    before = os.umask(0o077)
    try:
        haienv.ok("create base --no_extend fast tool --visibility public")
        haienv.ok("config append base extra-environment A=b")
    finally:
        os.umask(before)
    base = haienv.get("base")
    hidden = [
        path
        for top in (base.directory, base.path)
        for path in (top, *top.rglob("*"))
        if path.name not in ("used", "__pycache__") and path.stat().st_mode & 0o004 == 0
    ]
    assert hidden == []
    assert haienv.home.user_dir.stat().st_mode & 0o755 == 0o755


def test_parents_must_be_as_visible_as_their_children(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast")
    assert haienv("create top --extend base --visibility public").code == 1
    haienv.ok("config set base visibility public")
    haienv.ok("create top --extend base --visibility public")


def test_a_child_of_a_hidden_parent_can_be_configured(haienv: Any) -> None:
    haienv.ok("create base --no_extend fast --visibility public")
    haienv.ok("create top --extend base plain --visibility public")
    haienv.ok("config set base visibility private")
    haienv.ok("config append top extra-environment A=1")
    assert haienv("config set top visibility group --group root").code != 0
    assert haienv.ok("config show top --json").json["visibility"] == "public"


def test_invalid_names_of_distributions_are_skipped(haienv: Any) -> None:
    """Names of distributions become constraints, which the installer parses."""

    haienv.ok("create base --no_extend fast==1.0")
    site = haienv.get("base").sites[0]
    site.chmod(0o755)
    for name in (
        "x\n--index-url evil-1.dist-info",
        "a b-1.dist-info",
        "-e .-1.dist-info",
        "x-1 ; y.dist-info",
    ):
        (site / name).mkdir()
    assert read_versions([site]) == {"fast": "1.0"}
    haienv.ok("create top --extend base plain")
