"""The files and addresses of a server."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from hai_backend.config import Settings
from hai_backend.domain.errors import Invalid
from hai_backend.server.listen import advertised_address, agent_addresses, grpc_forwarding
from hai_backend.server.paths import read_run_token_key, write_server_file


def test_servers_that_start_together_share_one_key(tmp_path: Path) -> None:
    homes = [Settings(tmp_path / name, shared=str(tmp_path / "shared")) for name in "abcdefgh"]
    keys: list[bytes] = []
    threads = [
        threading.Thread(target=lambda s=s: keys.append(read_run_token_key(s))) for s in homes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*keys}) == 1
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["run-token.key"]
    assert (tmp_path / "shared" / "run-token.key").stat().st_mode & 0o777 == 0o600


def test_the_key_in_the_settings_is_used(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"k" * 32)
    assert (
        read_run_token_key(Settings(tmp_path / "home", run_token_key=str(tmp_path / "key")))
        == b"k" * 32
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "No such file", id="missing"),
        pytest.param(b"short", "holds 5 bytes; a key has at least 32", id="too short"),
    ],
)
def test_a_missing_or_short_key_is_refused(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    with pytest.raises(Invalid, match=f"run_token_key: .*{message}"):
        read_run_token_key(Settings(tmp_path, run_token_key="key"))


def test_the_server_file_names_address_process_authority_and_heartbeat(tmp_path: Path) -> None:
    write_server_file(tmp_path, "127.0.0.1:7450", Settings(tmp_path, agent_heartbeat=0.5))
    assert json.loads((tmp_path / "server.json").read_bytes()) == {
        "address": "127.0.0.1:7450",
        "ca": "",
        "heartbeat": 0.5,
        "pid": os.getpid(),
    }


@pytest.mark.parametrize(
    ("advertise", "listen", "expected"),
    [
        pytest.param("", "127.0.0.1:7450", "127.0.0.1:7450", id="the address where it listens"),
        pytest.param("10.0.0.5", "0.0.0.0:7450", "10.0.0.5:7450", id="a host"),
        pytest.param("hai.example.org:443", "0.0.0.0:7450", "hai.example.org:443", id="host and port"),
        pytest.param("", "0.0.0.0:7450", "here:7450", id="all interfaces: the host name"),
        pytest.param("", "[::]:7450", "here:7450", id="all IPv6 interfaces"),
        pytest.param("[fd00::5]", "[::]:7450", "[fd00::5]:7450", id="a host, IPv6"),
    ],
)  # fmt: skip
def test_the_advertised_address(
    monkeypatch: pytest.MonkeyPatch, advertise: str, listen: str, expected: str
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    assert advertised_address(Settings(Path("/h"), advertise=advertise), listen) == expected


def test_agents_try_the_leader_first() -> None:
    settings = Settings(Path("/h"), servers="a:1, b:1,c:1")
    assert agent_addresses(settings, "b:1") == "b:1,a:1,c:1"
    assert agent_addresses(Settings(Path("/h")), "b:1") == "b:1"


@pytest.mark.parametrize(
    ("leader", "insecure", "is_forwarded"),
    [
        pytest.param("127.0.0.1:1", False, True, id="on this machine"),
        pytest.param("10.0.0.1:1", False, False, id="no unencrypted tokens between machines"),
        pytest.param("10.0.0.1:1", True, True, id="unless the operator allows it"),
    ],
)
async def test_calls_are_forwarded_only_over_a_safe_connection(
    leader: str, insecure: bool, is_forwarded: bool
) -> None:
    forwarding = grpc_forwarding(leader, Settings(Path("/h"), insecure=insecure), None)
    assert (forwarding is not None) is is_forwarded
    if forwarding is not None:
        await forwarding.close()
