"""Tests of profiles: which server and token are used, and the file that stores them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hai.client import profile
from hai.client.errors import NotFound, UsageError
from hai.client.profile import Profile

LAB = Profile("lab", "lab:7450", "t-lab", ca="/ca.pem")
HOME = Profile("home", "localhost:7450", "t-home", insecure=True)


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*profile.SERVER_VARIABLES, *profile.TOKEN_VARIABLES, profile.PROFILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "deep" / "config.toml"
    monkeypatch.setenv("HAI_CONFIG", str(path))
    return path


@pytest.fixture
def stored(file: Path) -> Path:
    profile.save(HOME)
    profile.save(LAB)
    return file


@pytest.mark.parametrize(
    ("server", "token", "words"),
    [
        pytest.param("hai.example.org", "t", "'hai.example.org' is not the address", id="no port"),
        pytest.param("https://a:1", "t", "'https://a:1' is not the address", id="a page's"),
        pytest.param("a b:1", "t", "'a b:1' is not the address", id="a blank"),
        pytest.param("a:1,", "t", "'' is not the address", id="one of several is empty"),
        pytest.param("a:1", "s\u00e9cret", "characters that no token has", id="not ASCII"),
        pytest.param("a:1", "se\ncret", "characters that no token has", id="two lines"),
    ],
)
def test_malformed_addresses_and_tokens_are_refused_without_showing_the_token(
    server: str, token: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as reported:
        Profile("p", server, token).check()
    assert "cret" not in str(reported.value)


@pytest.mark.parametrize("server", ["a:1", "[::1]:7450", "a:1, b:2", "unix:/run/hai.sock"])
def test_valid_addresses_are_accepted(server: str) -> None:
    Profile("p", server, "t").check()


def test_a_token_is_stripped_of_line_ends(stored: Path, monkeypatch) -> None:
    monkeypatch.setenv("HAI_TOKEN", "t-env\r\n")
    assert profile.load().token == "t-env"


def test_saved_profiles_are_loaded(stored: Path) -> None:
    assert profile.names() == ("home", "lab")
    assert profile.current() == "lab"
    assert profile.load() == LAB
    assert profile.load("home") == HOME


def test_the_file_is_private_and_no_temporary_file_is_left(stored: Path) -> None:
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert [p.name for p in stored.parent.iterdir()] == ["config.toml"]


def test_a_failed_write_keeps_the_old_file(stored: Path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = stored.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        profile.save(Profile("new", "x:1"))
    assert stored.read_bytes() == before
    assert [p.name for p in stored.parent.iterdir()] == ["config.toml"]


@pytest.mark.parametrize(
    ("environ", "arguments", "expected"),
    [
        pytest.param({}, {}, LAB, id="current profile of the file"),
        pytest.param({"HAI_PROFILE": "home"}, {}, HOME, id="profile by environment"),
        pytest.param({"HAI_PROFILE": "home"}, {"name": "lab"}, LAB, id="name beats environment"),
        pytest.param(
            {"HAI_TOKEN": "t"},
            {},
            Profile("lab", "lab:7450", "t", ca="/ca.pem"),
            id="token by environment",
        ),
        pytest.param(
            {"HAI_SERVER": "x:1", "HAI_TOKEN": "t"},
            {},
            Profile("", "x:1", "t"),
            id="server and token by environment",
        ),
        pytest.param(
            {"MARSV2_SERVER": "x:1", "MARSV2_USER_TOKEN": "t"},
            {},
            Profile("", "x:1", "t"),
            id="HAI's old variables",
        ),
        pytest.param(
            {"HAI_SERVER": "x:1", "MARSV2_SERVER": "y:1"},
            {},
            Profile("", "x:1"),
            id="new variables beat old ones",
        ),
        pytest.param({"HAI_SERVER": "x:1"}, {}, Profile("", "x:1"), id="no token for a stranger"),
        pytest.param({}, {"server": "x:1"}, Profile("", "x:1"), id="nor by argument"),
        pytest.param({}, {"server": "localhost:7450"}, HOME, id="a known server has its profile"),
        pytest.param(
            {"HAI_SERVER": "x:1"}, {"server": "localhost:7450"}, HOME, id="argument beats all"
        ),
        pytest.param({"HAI_SERVER": "x:1"}, {"name": "home"}, HOME, id="a name is taken as stored"),
    ],
)
def test_precedence(stored: Path, monkeypatch, environ, arguments, expected) -> None:
    for key, value in environ.items():
        monkeypatch.setenv(key, value)
    assert profile.load(**arguments) == expected


def test_the_error_without_a_server_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="no server") as caught:
        profile.load()
    assert "hai init" in caught.value.hint


def test_the_error_about_an_unknown_name_lists_stored_ones(stored: Path) -> None:
    for call in (profile.load, profile.use, profile.delete):
        with pytest.raises(NotFound, match="nope") as caught:
            call("nope")
        assert "home, lab" in caught.value.hint


def test_use_and_delete(stored: Path) -> None:
    profile.use("home")
    assert profile.current() == "home"
    profile.delete("home")
    assert (profile.names(), profile.current()) == (("lab",), "")


def test_a_malformed_file_is_reported(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("current = [")
    with pytest.raises(UsageError, match=r"config\.toml"):
        profile.load()


@pytest.mark.parametrize("text", ["profiles = 3", "[profiles]\nlab = 3"])
def test_a_file_with_another_structure_is_reported(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(UsageError, match=r"config\.toml"):
        profile.load()


def test_the_token_is_not_in_the_repr() -> None:
    assert "t-lab" not in repr(LAB)


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        pytest.param("import hai.client.profile", ("grpc", "google"), id="profile"),
        pytest.param("from hai.client import Profile", ("grpc", "google"), id="from the package"),
        pytest.param("import hai.client.errors", ("grpc", "google"), id="errors"),
        pytest.param("import hai.client.taskfile.spec", ("grpc",), id="spec"),
    ],
)
def test_imports_load_no_heavy_modules(statement: str, forbidden: tuple[str, ...]) -> None:
    code = f"{statement}\nimport sys\nprint([m for m in {forbidden!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_profile_file_may_begin_with_a_byte_order_mark(stored: Path) -> None:
    stored.write_bytes(b"\xef\xbb\xbf" + stored.read_bytes())
    assert profile.load("lab") == LAB
