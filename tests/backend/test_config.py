"""Settings: unknown and invalid settings prevent the start, and other settings have suitable defaults."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from hai_backend import config
from hai_backend.domain.errors import Invalid


@pytest.mark.parametrize("value", ["", "off", "warn", "require"])
def test_what_a_submission_does_about_its_image(tmp_path: Path, value: str) -> None:
    read = config.load(tmp_path, {}, {"HAI_SERVER_IMAGE_CHECK": value})
    assert read.image_check == value


def test_a_variable_may_end_in_a_newline(tmp_path: Path) -> None:
    url = "postgresql://hai@db.example.org/hai"
    assert config.load(tmp_path, {}, {"HAI_SERVER_DATABASE": f"{url}\n"}).database == url


def test_another_word_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="image_check: must be one of off, warn, require, not 'no'"):
        config.load(tmp_path, {"image_check": "no"}, {})


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        pytest.param({}, 60.0, id="processes start at once"),
        pytest.param({"kubernetes": {"agent_path": "/opt/hai"}}, 600.0, id="pods pull an image"),
        pytest.param(
            {"kubernetes": {"agent_path": "/opt/hai"}, "build_within": 30.0},
            30.0,
            id="as it is said",
        ),
    ],
)
def test_how_long_ranks_may_take_to_attach(
    tmp_path: Path, given: dict[str, object], seconds: float
) -> None:
    assert config.load(tmp_path, given, {}).build_seconds == seconds


def test_certificates_lie_below_the_home(tmp_path: Path) -> None:
    read = config.load(tmp_path, {"tls_cert": "a.pem", "tls_key": "/b.pem"}, {})
    assert (read.tls_cert, read.tls_key, read.tls_ca) == (str(tmp_path / "a.pem"), "/b.pem", "")
    assert read.authority == read.tls_cert


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        pytest.param({"nodes": -3}, "nodes", id="fewer than no nodes"),
        pytest.param({"resync_seconds": 0}, "resync_seconds", id="without pause"),
        pytest.param({"resync_seconds": -5.0}, "resync_seconds", id="less than no pause"),
        pytest.param({"build_within": math.nan}, "build_within", id="not a number"),
        pytest.param({"build_within": -1}, "build_within", id="before it begins"),
        pytest.param({"save_within_max": -1}, "save_within_max", id="no time to save"),
        pytest.param({"save_within_max": 3601}, "save_within_max", id="more than a task may have"),
        pytest.param({"agent_heartbeat": 0}, "agent_heartbeat", id="heartbeats without pause"),
        pytest.param({"agent_heartbeat": 61}, "agent_heartbeat", id="as good as no heartbeats"),
        pytest.param({"log_bytes_per_rank": 60_000}, "log_bytes_per_rank", id="less than a chunk"),
        pytest.param({"default_quota": -7}, "default_quota", id="below unlimited"),
        pytest.param({"metrics_port": 99_999}, "metrics_port", id="no port"),
        pytest.param({"listen": "127.0.0.1"}, "listen", id="an address without a port"),
        pytest.param({"listen": "127.0.0.1:99999"}, "listen", id="an address with no port"),
        pytest.param({"http_listen": "127.0.0.1:abc"}, "http_listen", id="a port in letters"),
        pytest.param({"admin": "ada.l"}, "admin", id="a name that no user may have"),
        pytest.param({"advertise": "fd00::1"}, "advertise", id="whose last part could be a port"),
        pytest.param({"advertise": "http://a.org"}, "advertise", id="a page, not a server"),
        pytest.param({"servers": "a.org:1,b.org"}, "servers", id="servers without a port"),
        pytest.param({"http_url": "a.org"}, "http_url", id="no scheme"),
        pytest.param({"http_url": "https://a.org/hai"}, "http_url", id="below another page"),
        pytest.param(
            {"groups": {"a": 1, "a#1": 2}}, "groups.a#1", id="a group that reads as a zone"
        ),
        pytest.param({"lifetimes": {"banana": 3}}, "lifetimes.banana", id="no kind of container"),
        pytest.param({"node_ports_from": 40_000}, "node_ports_from", id="order"),
    ],
)
def test_a_value_that_cannot_be_is_told_at_the_start(
    tmp_path: Path, settings: dict[str, Any], key: str
) -> None:
    with pytest.raises(Invalid) as told:
        config.load(tmp_path, settings, {})
    assert [violation.field for violation in told.value.violations] == [key]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("cluster", 3, "3 is not a text"),
        ("insecure", "yes", "'yes' is not true or false"),
        ("log_bytes_per_rank", "256MiB", "'256MiB' is not a whole number"),
        ("resync_seconds", "5s", "'5s' is not a number"),
        ("groups", {"a": "4"}, "{'a': '4'} is not a table of whole numbers from 0"),
        ("kubernetes", "k3s", "'k3s' is not a table"),
    ],
)
def test_a_wrong_type_is_told_in_plain_words(
    tmp_path: Path, key: str, value: Any, said: str
) -> None:
    with pytest.raises(Invalid) as told:
        config.load(tmp_path, {key: value}, {})
    assert [str(violation.message) for violation in told.value.violations] == [said]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        pytest.param('cluster = "Köln"'.encode("latin-1"), "can't decode byte", id="no UTF-8"),
        pytest.param(b"nodes 4", "Expected '=' after a key", id="no TOML"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, written: bytes, said: str) -> None:
    (tmp_path / "hai.toml").write_bytes(written)
    with pytest.raises(Invalid, match=f"hai.toml: cannot be read: .*{said}"):
        config.load(tmp_path, {}, {})


@pytest.mark.parametrize(
    "settings",
    [
        {"advertise": "[fd00::1]", "servers": "[fd00::1]:7450, b.org:7450,"},
        {"advertise": "a.org:7450", "http_url": "http://[::1]:7480/"},
    ],
)
def test_ways_to_the_servers(tmp_path: Path, settings: dict[str, Any]) -> None:
    read = config.load(tmp_path, settings, {})
    assert {name: getattr(read, name) for name in settings} == settings


@pytest.mark.parametrize(
    "listen", ["127.0.0.1:0", "[::1]:7450", "hai.example.org:443", "0.0.0.0:1"]
)
def test_sound_addresses_are_taken(tmp_path: Path, listen: str) -> None:
    assert config.load(tmp_path, {"listen": listen, "http_listen": ""}, {}).listen == listen
