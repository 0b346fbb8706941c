"""What a shell evaluated is used again without any Python, and never after anything has changed."""

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
from haienv.activate.shells import SHELLS, quoted, text_for

BIN = Path(__file__).parents[2] / "haienv" / "bin"
ODD = 'it\'s "a" $b `c` \\ é=:;'


@dataclass(frozen=True)
class Entering:
    """`source haienv NAME` in a new shell each time; its Python leaves a mark whenever it is run."""

    shell: str
    place: Path
    run_shell: Callable[..., Any]
    variables: dict[str, str]

    def __call__(self, name: str, **variables: str) -> tuple[str, int]:
        """What was entered (empty: nothing), and how often Python was needed for it."""
        self.mark.write_text("")
        file = self.place / ("haienv.fish" if self.shell == "fish" else "haienv")
        text = (
            f'source {quoted(str(file))} {quoted(name)}\necho "$HF_ENV_NAME $HF_ENV_OWNER $WITH"\n'
        )
        done = self.run_shell(self.shell, text, **{**self.variables, **variables})
        return done.stdout.decode().strip(), len(self.mark.read_text())

    @property
    def mark(self) -> Path:
        return self.place / "mark"

    @property
    def kept(self) -> Path:
        return Path(self.variables["XDG_CACHE_HOME"]) / "haienv" / f"enter-3-{self.shell}"


@pytest.fixture(params=SHELLS)
def enter(request: Any, haienv: Any, tmp_path: Path, run_shell: Callable[..., Any]) -> Entering:
    place = tmp_path / "b in"
    place.mkdir()
    for file in BIN.iterdir():
        shutil.copy(file, place)
    python = place / "python"
    python.write_text(
        f'#!/bin/sh\nprintf x >> {quoted(str(place / "mark"))}\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    own = {
        "HAIENV_HOME": str(haienv.home.root),
        "HAIENV_USER": "ann",
        "XDG_CACHE_HOME": str(tmp_path / "ca che"),
    }
    return Entering(request.param, place, run_shell, own)


def test_the_second_time_needs_no_python(haienv: Any, enter: Entering) -> None:
    haienv.ok("create base --no_extend --extra-environment", f"WITH={ODD}")
    haienv.ok("create top --extend base")
    for name, told in (("top", f"top ann {ODD}"), ("base[ann]", f"base ann {ODD}")):
        assert enter(name) == (told, 1)
        assert enter(name) == (told, 0)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param("config append top extra-environment WITH=top", "top ann top", id="its own label"),
        pytest.param("config append base extra-environment WITH=new", "top ann new", id="a parent's label"),
        pytest.param("install top plain", "top ann base", id="its layer"),
        pytest.param("rename base other", "top ann", id="a parent without a name"),
        pytest.param("rename top other", "", id="no such name any more"),
        pytest.param("config set top deprecated 'use another'", "top ann base", id="a note"),
    ],
)  # fmt: skip
def test_what_changed_is_asked_again(haienv: Any, enter: Entering, line: str, told: str) -> None:
    haienv.ok("create base --no_extend --extra-environment WITH=base")
    haienv.ok("create top --extend base")
    assert [enter("top"), enter("top")] == [("top ann base", 1), ("top ann base", 0)]
    haienv.ok(line)
    assert enter("top") == (told, 1)
    assert enter("top") == (told, 0 if told else 1)


def test_a_name_that_means_another_now(haienv: Any, enter: Entering) -> None:
    haienv.as_user("system").ok("create base --no_extend --visibility public")
    assert [enter("base"), enter("base")] == [("base system", 1), ("base system", 0)]
    assert enter("base", HAIENV_USER="bob") == ("base system", 1)
    haienv.as_user("ann").ok("create base --no_extend")
    assert enter("base") == ("base ann", 1)


def test_what_only_another_has_is_always_looked_for(haienv: Any, enter: Entering) -> None:
    haienv.as_user("bob").ok("create base --no_extend --visibility public")
    assert [enter("base"), enter("base")] == [("base bob", 1)] * 2
    assert [enter("base[bob]"), enter("base[bob]")] == [("base bob", 1), ("base bob", 0)]


def test_a_name_of_hais_is_always_looked_for(haienv: Any, enter: Entering) -> None:
    system = haienv.as_user("system")
    system.ok("create 202111 --no_extend --visibility public")
    haienv.as_user("ann")
    assert enter("py3-202111") == enter("py3-202111") == ("202111 system", 1)
    system = haienv.as_user("system")
    system.ok("create py3-202111 --no_extend --visibility public")
    haienv.as_user("ann")
    assert enter("py3-202111") == ("py3-202111 system", 1)


def test_another_root_and_a_root_that_is_not_absolute(haienv: Any, enter: Entering) -> None:
    haienv.ok("create base --no_extend")
    enter("base")
    assert enter("base", HAIENV_HOME=str(haienv.home.root / "none")) == ("", 1)
    assert enter("base", HAIENV_HOME=os.path.relpath(haienv.home.root)) == ("base ann", 1)
    assert enter("base") == ("base ann", 0)


def test_a_python_that_is_gone_is_told(haienv: Any, enter: Entering) -> None:
    haienv.ok("create base --no_extend")
    enter("base")
    haienv.get("base").path.joinpath("bin").chmod(0o755)
    haienv.get("base").path.joinpath("bin", "python").unlink()
    assert enter("base") == ("", 1)


def test_a_label_that_is_a_pipe_or_a_link_now(haienv: Any, enter: Entering) -> None:
    haienv.ok("create base --no_extend")
    enter("base")
    label = haienv.get("base").directory / "env.toml"
    label.rename(label.with_name(".was"))
    label.symlink_to(".was")
    assert enter("base") == ("", 1)
    label.unlink()
    os.mkfifo(label)
    assert enter("base") == ("", 1)


def test_a_directory_that_others_may_write_is_not_used(haienv: Any, enter: Entering) -> None:
    haienv.ok("create base --no_extend")
    enter.kept.mkdir(parents=True)
    enter.kept.chmod(0o777)
    assert [enter("base"), enter("base")] == [("base ann", 1)] * 2
    assert list(enter.kept.iterdir()) == []
    assert enter.kept.parent.stat().st_mode & 0o777 == 0o755  # made by the test


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_another_made_is_not_run(haienv: Any, enter: Entering) -> None:
    haienv.ok("create base --no_extend")
    enter("base")
    (enter.kept / "base").write_text("echo HACKED\n")
    os.chown(enter.kept / "base", 12345, -1)
    assert enter("base") == ("base ann", 1)
    os.chown(enter.kept, 12345, -1)
    assert enter("base") == ("base ann", 1)


def test_where_nothing_can_be_kept_it_works_all_the_same(haienv: Any, enter: Entering) -> None:
    haienv.ok("create base --no_extend")
    assert enter("base", XDG_CACHE_HOME="/proc/nothing") == ("base ann", 1)


def test_what_lies_in_the_current_directory_is_not_run(
    haienv: Any, enter: Entering, tmp_path: Path
) -> None:
    """As in a repository that somebody cloned."""
    haienv.ok("create base --no_extend")
    haienv.monkeypatch.chdir(tmp_path)
    trap = tmp_path / "rel" / "haienv" / enter.kept.name
    trap.mkdir(parents=True)
    (trap / "base").write_text("echo HACKED\n")
    assert enter("base", XDG_CACHE_HOME="rel") == ("base ann", 1)
    assert enter("base", XDG_CACHE_HOME="", HOME="") == ("base ann", 1)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "-u", "a b", "x\ny", "$(id)", "*"])
def test_odd_names_lead_nowhere(haienv: Any, enter: Entering, name: str) -> None:
    haienv.ok("create base --no_extend")
    assert enter(name) == ("", 1)
    assert not enter.kept.parent.exists()


TEXTS = {
    "bash": "96f6a4f42cf40feb",
    "zsh": "4b9c6e98519c2af9",
    "fish": "a5aa70946d28f8e2",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_number_in_the_scripts_is_raised_with_the_text(shell: str) -> None:
    sample = Activation("n", "o", "h", "/p", ("/b",), ("/s",), {"V": "v"}, "[n] ", "note")
    digest = sha256(text_for(shell, sample).encode()).hexdigest()[:16]
    assert digest == TEXTS[shell], "shells keep this text: raise enter-N in haienv/bin, then this"
    assert all("enter-3-" in (BIN / file).read_text() for file in ("haienv", "haienv.fish"))
