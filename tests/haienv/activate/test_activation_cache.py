"""The cached text activates an environment without Python, unless anything has changed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from haienv.activate.activation import Activation
from haienv.activate.shells import SHELLS, activation_script, quote

BIN = Path(__file__).parents[3] / "haienv" / "bin"
ODD = 'it\'s "a" $b `c` \\ é=:;'


@dataclass(frozen=True)
class Activator:
    """Runs `source haienv NAME` in a new shell, and counts the runs of Python in a file."""

    shell: str
    bin_dir: Path
    run_shell: Callable[..., Any]
    variables: dict[str, str]

    def __call__(self, name: str, **variables: str) -> tuple[str, int]:
        """Return the active environment (empty if there is none), and the number of runs of Python."""
        self.mark.write_text("")
        file = self.bin_dir / ("haienv.fish" if self.shell == "fish" else "haienv")
        text = f'source {quote(str(file))} {quote(name)}\necho "$HF_ENV_NAME $HF_ENV_OWNER $WITH"\n'
        done = self.run_shell(self.shell, text, **{**self.variables, **variables})
        return done.stdout.decode().strip(), len(self.mark.read_text())

    @property
    def mark(self) -> Path:
        return self.bin_dir / "mark"

    @property
    def cache_dir(self) -> Path:
        return Path(self.variables["XDG_CACHE_HOME"]) / "haienv" / f"enter-3-{self.shell}"


@pytest.fixture(params=SHELLS)
def enter(request: Any, haienv: Any, tmp_path: Path, run_shell: Callable[..., Any]) -> Activator:
    bin_dir = tmp_path / "b in"
    bin_dir.mkdir()
    for file in BIN.iterdir():
        shutil.copy(file, bin_dir)
    python = bin_dir / "python"
    python.write_text(
        f'#!/bin/sh\nprintf x >> {quote(str(bin_dir / "mark"))}\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    variables = {
        "HAIENV_HOME": str(haienv.home.root),
        "HAIENV_USER": "ann",
        "XDG_CACHE_HOME": str(tmp_path / "ca che"),
    }
    return Activator(request.param, bin_dir, run_shell, variables)


def test_a_second_activation_needs_no_python(haienv: Any, enter: Activator) -> None:
    haienv.ok("create base --no_extend --extra-environment", f"WITH={ODD}")
    haienv.ok("create top --extend base")
    for name, expected in (("top", f"top ann {ODD}"), ("base[ann]", f"base ann {ODD}")):
        assert enter(name) == (expected, 1)
        assert enter(name) == (expected, 0)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("config append top extra-environment WITH=top", "top ann top", id="its own label"),
        pytest.param("config append base extra-environment WITH=new", "top ann new", id="a parent's label"),
        pytest.param("install top plain", "top ann base", id="its layer"),
        pytest.param("rename base other", "top ann", id="a parent without a name"),
        pytest.param("rename top other", "", id="no such name any more"),
        pytest.param("config set top deprecated 'use another'", "top ann base", id="a note"),
    ],
)  # fmt: skip
def test_changes_invalidate_the_cache(
    haienv: Any, enter: Activator, line: str, expected: str
) -> None:
    haienv.ok("create base --no_extend --extra-environment WITH=base")
    haienv.ok("create top --extend base")
    assert [enter("top"), enter("top")] == [("top ann base", 1), ("top ann base", 0)]
    haienv.ok(line)
    assert enter("top") == (expected, 1)
    assert enter("top") == (expected, 0 if expected else 1)


def test_a_name_that_now_means_another_environment(haienv: Any, enter: Activator) -> None:
    haienv.as_user("system").ok("create base --no_extend --visibility public")
    assert [enter("base"), enter("base")] == [("base system", 1), ("base system", 0)]
    assert enter("base", HAIENV_USER="bob") == ("base system", 1)
    haienv.as_user("ann").ok("create base --no_extend")
    assert enter("base") == ("base ann", 1)


def test_environments_of_other_users_are_cached_by_full_name_only(
    haienv: Any, enter: Activator
) -> None:
    haienv.as_user("bob").ok("create base --no_extend --visibility public")
    assert [enter("base"), enter("base")] == [("base bob", 1)] * 2
    assert [enter("base[bob]"), enter("base[bob]")] == [("base bob", 1), ("base bob", 0)]


def test_legacy_names_are_not_cached(haienv: Any, enter: Activator) -> None:
    system = haienv.as_user("system")
    system.ok("create 202111 --no_extend --visibility public")
    haienv.as_user("ann")
    assert enter("py3-202111") == enter("py3-202111") == ("202111 system", 1)
    system = haienv.as_user("system")
    system.ok("create py3-202111 --no_extend --visibility public")
    haienv.as_user("ann")
    assert enter("py3-202111") == ("py3-202111 system", 1)


def test_another_root_and_a_root_that_is_not_absolute(haienv: Any, enter: Activator) -> None:
    haienv.ok("create base --no_extend")
    enter("base")
    assert enter("base", HAIENV_HOME=str(haienv.home.root / "none")) == ("", 1)
    assert enter("base", HAIENV_HOME=os.path.relpath(haienv.home.root)) == ("base ann", 1)
    assert enter("base") == ("base ann", 0)


def test_a_missing_python_is_reported(haienv: Any, enter: Activator) -> None:
    haienv.ok("create base --no_extend")
    enter("base")
    haienv.get("base").path.joinpath("bin").chmod(0o755)
    haienv.get("base").path.joinpath("bin", "python").unlink()
    assert enter("base") == ("", 1)


def test_metadata_that_became_a_pipe_or_a_link(haienv: Any, enter: Activator) -> None:
    haienv.ok("create base --no_extend")
    enter("base")
    label = haienv.get("base").directory / "env.toml"
    label.rename(label.with_name(".was"))
    label.symlink_to(".was")
    assert enter("base") == ("", 1)
    label.unlink()
    os.mkfifo(label)
    assert enter("base") == ("", 1)


def test_a_cache_directory_that_others_may_write_is_not_used(haienv: Any, enter: Activator) -> None:
    haienv.ok("create base --no_extend")
    enter.cache_dir.mkdir(parents=True)
    enter.cache_dir.chmod(0o777)
    assert [enter("base"), enter("base")] == [("base ann", 1)] * 2
    assert list(enter.cache_dir.iterdir()) == []
    assert enter.cache_dir.parent.stat().st_mode & 0o777 == 0o755  # made by the test


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_of_other_users_are_not_run(haienv: Any, enter: Activator) -> None:
    haienv.ok("create base --no_extend")
    enter("base")
    (enter.cache_dir / "base").write_text("echo HACKED\n")
    os.chown(enter.cache_dir / "base", 12345, -1)
    assert enter("base") == ("base ann", 1)
    os.chown(enter.cache_dir, 12345, -1)
    assert enter("base") == ("base ann", 1)


def test_activation_works_without_a_cache_directory(haienv: Any, enter: Activator) -> None:
    haienv.ok("create base --no_extend")
    assert enter("base", XDG_CACHE_HOME="/proc/nothing") == ("base ann", 1)


def test_relative_cache_directories_are_ignored(
    haienv: Any, enter: Activator, tmp_path: Path
) -> None:
    """The current directory may be an untrusted repository."""
    haienv.ok("create base --no_extend")
    haienv.monkeypatch.chdir(tmp_path)
    trap = tmp_path / "rel" / "haienv" / enter.cache_dir.name
    trap.mkdir(parents=True)
    (trap / "base").write_text("echo HACKED\n")
    assert enter("base", XDG_CACHE_HOME="rel") == ("base ann", 1)
    assert enter("base", XDG_CACHE_HOME="", HOME="") == ("base ann", 1)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "-u", "a b", "x\ny", "$(id)", "*"])
def test_invalid_names_activate_nothing(haienv: Any, enter: Activator, name: str) -> None:
    haienv.ok("create base --no_extend")
    assert enter(name) == ("", 1)
    assert not enter.cache_dir.parent.exists()


TEXTS = {"bash": "96f6a4f42cf40feb", "zsh": "4b9c6e98519c2af9", "fish": "a5aa70946d28f8e2"}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_cache_version_changes_with_the_text(shell: str) -> None:
    sample = Activation("n", "o", "h", "/p", ("/b",), ("/s",), {"V": "v"}, "[n] ", "note")
    digest = sha256(activation_script(shell, sample).encode()).hexdigest()[:16]
    assert digest == TEXTS[shell], "shells keep this text: raise enter-N in haienv/bin, then this"
    assert all("enter-3-" in (BIN / file).read_text() for file in ("haienv", "haienv.fish"))
