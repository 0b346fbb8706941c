"""`haiworkspace bugreport`: what somebody who looks for a fault asks first. Nothing is changed by it."""

from __future__ import annotations

import json
import platform
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from hai.client.connection.transport import Connection
from hai.client.errors import explained
from hai.v1.server_service_pb2 import GetServerInfoRequest
from hai.v1.server_service_pb2_grpc import ServerServiceStub
from hai_sync.cli.options import common
from hai_sync.cli.session_factory import with_connection
from hai_sync.remote.endpoint import Remote
from hai_sync.settings import settings
from hai_sync.version_store import VersionStore
from hai_sync.watch.control import ask
from hai_sync.watch.events import network_type
from hai_sync.workspace_dir import WorkspaceDir, find

_PACKAGES = ("hai-platform", "grpcio", "protobuf", "blake3", "pyfastcdc", "zstandard")
_TABLES = ("seen", "base", "theirs", "left_out")
_FACTS = ("revision", "clean", "synced", "looked_ns", "filter")
_DAEMON = ("pid", "mode", "phase", "error", "syncs", "polling", "refused")
_LOG_LINES = 30


@click.command()
@common
def bugreport(**options: Any) -> int:
    """Print versions, settings, sizes of what is remembered, and the daemon's last words, for an issue.

    Contents of files and tokens are not in it; names of files may be.
    """
    place = find()
    report = {
        "versions": _told(_versions),
        "workspace": _told(lambda: _workspace(place)),
        "index": _told(lambda: _index(place.state / "index.sqlite")),
        "kept": _told(lambda: _kept(place.state / "kept")),
        "daemon": _told(lambda: _daemon(place)),
        "server": _told(lambda: with_connection(options["profile"], lambda c: _server(c, place))),
        "log": _told(lambda: _log(place.state / "daemon.log")),
    }
    one_line = options["as_json"] or options["output"] == "json"
    text = json.dumps(
        {"event": "bugreport", **report}, indent=None if one_line else 2, default=repr
    )
    click.echo(text)
    return 0


def _told(look: Callable[[], Any]) -> Any:
    """What cannot be looked at is a finding, too."""
    try:
        return look()
    except Exception as error:
        known = explained(error)
        return {"failed": f"{type(known).__name__}: {known}"}


def _versions() -> Mapping[str, str]:
    found = {"python": platform.python_version(), "system": platform.platform()}
    return found | {name: _version(name) for name in _PACKAGES}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _workspace(place: WorkspaceDir) -> Mapping[str, Any]:
    network = network_type(place.root)
    return {"name": place.name, "id": place.id, "network": network, "settings": settings(place)}


def _index(path: Path) -> Mapping[str, Any] | None:
    if not path.exists():
        return None
    used = path.with_name(f"{path.name}-wal").exists()  # else SQLite would make files beside it
    how = "mode=ro" if used else "immutable=1"
    with closing(sqlite3.connect(f"{path.as_uri()}?{how}", uri=True)) as db:
        counts = {t: db.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in _TABLES}
        facts = dict(db.execute("SELECT name, value FROM facts"))
        check = db.execute("PRAGMA quick_check").fetchone()[0]
    kept = {name: facts.get(name, "") for name in _FACTS}
    return {"bytes": path.stat().st_size, "check": check, "rows": counts, **kept}


def _kept(folder: Path) -> Mapping[str, int]:
    sizes = [found.size for found in VersionStore(folder).versions()]
    return {"versions": len(sizes), "bytes": sum(sizes)}


def _daemon(place: WorkspaceDir) -> Mapping[str, Any] | None:
    answer = ask(place.own, {"verb": "status"}, timeout=5)
    if answer is None:
        return None
    lists = {name: len(answer[name]) for name in ("conflicts", "problems", "passed_over")}
    return {name: answer[name] for name in _DAEMON} | lists


async def _server(connection: Connection, place: WorkspaceDir) -> Mapping[str, Any]:
    began = time.monotonic()
    info = await connection.unary(
        connection.stub(ServerServiceStub).GetServerInfo, GetServerInfoRequest(), retry=True
    )
    seconds = round(time.monotonic() - began, 3)
    found = await Remote(connection, place.name).get()
    return {
        "version": info.version,
        "launcher": info.launcher,
        "seconds": seconds,
        "revision": found.revision,
        "files": found.files,
        "stored_bytes": found.stored_bytes,
        "clock_off_seconds": round(time.time() - info.time.ToNanoseconds() / 1e9),
    }


def _log(path: Path) -> list[str]:
    if not path.exists():
        return []
    return path.read_text("utf-8", "replace").splitlines()[-_LOG_LINES:]
