"""A server's files, its keys, and where others reach it."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from hai_backend.config import Settings
from hai_backend.domain.errors import Invalid
from hai_backend.server.listen import advertised, told_to_agents, way_to
from hai_backend.server.paths import leave_word, run_token_key


def test_servers_that_start_together_have_one_key(tmp_path: Path) -> None:
    homes = [Settings(tmp_path / name, shared=str(tmp_path / "shared")) for name in "abcdefgh"]
    keys: list[bytes] = []
    threads = [threading.Thread(target=lambda s=s: keys.append(run_token_key(s))) for s in homes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*keys}) == 1
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["run-token.key"]
    assert (tmp_path / "shared" / "run-token.key").stat().st_mode & 0o777 == 0o600


def test_a_given_key_is_taken(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"k" * 32)
    assert (
        run_token_key(Settings(tmp_path / "home", run_token_key=str(tmp_path / "key"))) == b"k" * 32
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "No such file", id="there is none"),
        pytest.param(b"short", "holds 5 bytes; a key has at least 32", id="too short"),
    ],
)
def test_a_bad_key_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    with pytest.raises(Invalid, match=f"run_token_key: .*{message}"):
        run_token_key(Settings(tmp_path, run_token_key="key"))


def test_agents_learn_where_the_server_is_and_how_often_to_send_heartbeats(tmp_path: Path) -> None:
    leave_word(tmp_path, "127.0.0.1:7450", Settings(tmp_path, agent_heartbeat=0.5))
    assert json.loads((tmp_path / "server.json").read_bytes()) == {
        "address": "127.0.0.1:7450",
        "ca": "",
        "heartbeat": 0.5,
        "pid": os.getpid(),
    }


@pytest.mark.parametrize(
    ("wanted", "listening", "others_use"),
    [
        pytest.param("", "127.0.0.1:7450", "127.0.0.1:7450", id="where it listens"),
        pytest.param("10.0.0.5", "0.0.0.0:7450", "10.0.0.5:7450", id="a host"),
        pytest.param("hai.example.org:443", "0.0.0.0:7450", "hai.example.org:443", id="host and port"),
        pytest.param("", "0.0.0.0:7450", "here:7450", id="everywhere: by its name"),
        pytest.param("", "[::]:7450", "here:7450", id="everywhere, IPv6"),
        pytest.param("[fd00::5]", "[::]:7450", "[fd00::5]:7450", id="a host, IPv6"),
    ],
)  # fmt: skip
def test_where_others_reach_it(
    monkeypatch: pytest.MonkeyPatch, wanted: str, listening: str, others_use: str
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    assert advertised(Settings(Path("/h"), advertise=wanted), listening) == others_use


def test_agents_try_the_leader_first() -> None:
    settings = Settings(Path("/h"), servers="a:1, b:1,c:1")
    assert told_to_agents(settings, "b:1") == "b:1,a:1,c:1"
    assert told_to_agents(Settings(Path("/h")), "b:1") == "b:1"


@pytest.mark.parametrize(
    ("leader", "insecure", "reached"),
    [
        pytest.param("127.0.0.1:1", False, True, id="on this machine"),
        pytest.param("10.0.0.1:1", False, False, id="no tokens in plain text"),
        pytest.param("10.0.0.1:1", True, True, id="unless the operator says so"),
    ],
)
async def test_the_way_to_a_leader(leader: str, insecure: bool, reached: bool) -> None:
    way = way_to(leader, Settings(Path("/h"), insecure=insecure), None)
    assert (way is not None) is reached
    if way is not None:
        await way.close()
