"""Passwords and tokens in URLs are used once; haienv writes them to no file and prints them nowhere."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

SECRET = "hunter2-s3cr3t"
WHEEL = "plain-2.0-py3-none-any.whl"


class Handler(SimpleHTTPRequestHandler):
    """Serves files with basic authentication."""

    def do_GET(self) -> None:
        expected = base64.b64encode(f"worker:{SECRET}".encode()).decode()
        if self.headers.get("Authorization") == f"Basic {expected}":
            return super().do_GET()
        self.send_response(401)
        self.send_header("WWW-Authenticate", "Basic realm=packages")
        return self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def private_index(wheelhouse: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """HOST:PORT of a server that requires a password."""
    monkeypatch.delenv("UV_OFFLINE")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=wheelhouse))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def files_with(text: str, folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [str(path) for path in files if text.encode() in path.read_bytes()]


def test_a_password_is_neither_stored_nor_printed(
    haienv: Any, private_index: str, tmp_path: Path
) -> None:
    url = f"http://worker:{SECRET}@{private_index}/{WHEEL}?token={SECRET}"
    (tmp_path / "r.txt").write_text(f"plain @ {url}\n")
    results = [
        haienv.ok("create one --no_extend --verify --from", tmp_path / "r.txt"),
        *map(haienv.ok, ("info one", "info one --json", "lock one", "freeze one", "verify one")),
        haienv.ok("install one --no-index fast", f"plain @ {url}"),
        haienv.ok("create two --no_extend --json --dry-run", f"plain @ {url}"),
        haienv.ok("export --recipe one", tmp_path / "recipe"),
    ]
    assert [each for each in results if SECRET in each.out + each.err] == []
    assert files_with(SECRET, haienv.home.root) == []
    assert haienv.run("one", "import plain; print(plain.VERSION)") == "2.0"
    layer = haienv.get("one").layer
    assert layer.wanted == (f"plain @ http://{private_index}/{WHEEL}", "fast")
    direct_url = (haienv.get("one").sites[0] / "plain-2.0.dist-info/direct_url.json").read_text()
    assert json.loads(direct_url)["url"] == f"http://{private_index}/{WHEEL}"
    refused = haienv("install one --no-index tool")
    assert refused.code == 1
    assert "put it into ~/.netrc" in refused.err


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("plain @ http://worker:{secret}wrong@{index}/" + WHEEL, id="refused"),
        pytest.param("--index-url http://worker:{secret}@{index}/simple", id="an option"),
        pytest.param("plain @ http://worker:{secret}@{index}/x.whl ; nonsense", id="no requirement"),
        pytest.param("-e http://worker:{secret}@{index}/x", id="no directory"),
        pytest.param("plain @ git+http://worker:{secret}@{index}/x.git", id="no hash"),
        pytest.param("gone @ http://{secret}@{index}/gone-1.0-py3-none-any.whl?access_token={secret}", id="token"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("options", ["", "--json", "--debug"])
def test_errors_contain_no_password(
    haienv: Any, private_index: str, tmp_path: Path, line: str, options: str
) -> None:
    (tmp_path / "r.txt").write_text(line.format(secret=SECRET, index=private_index))
    failed = haienv(f"create one --no_extend {options} --from", tmp_path / "r.txt")
    assert failed.code != 0
    assert "****" in failed.err
    assert SECRET not in failed.out + failed.err


@pytest.mark.parametrize("source", ["netrc", "variable"])
def test_later_commands_take_credentials_from_netrc_or_variables(
    haienv: Any, private_index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login worker password {SECRET}\n")
    user = ""
    if source == "netrc":
        monkeypatch.setenv("NETRC", str(netrc))
    else:
        monkeypatch.setenv("WORKER_PASSWORD", SECRET)
        user = "worker:${WORKER_PASSWORD}@"
    haienv.ok("create one --no_extend", f"plain @ http://{user}{private_index}/{WHEEL}")
    for cache in ("first", "second"):  # an empty cache
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / cache))
        haienv.ok("upgrade one")
    (tmp_path / "lock").write_text(haienv.ok("lock one").out)
    haienv.ok("create two --no_extend --from", tmp_path / "lock")
    assert haienv.get("two").layer.lock_hash == haienv.get("one").layer.lock_hash
    assert files_with(SECRET, haienv.home.root) == []
