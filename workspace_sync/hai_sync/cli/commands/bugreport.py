"""The command `haiworkspace bugreport`: prints what an investigation needs first, and changes nothing."""

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
from hai.client.errors import explain_error
from hai.v1.server_service_pb2 import GetServerInfoRequest
from hai.v1.server_service_pb2_grpc import ServerServiceStub
from hai_sync.cli.options import common_options, wants_json
from hai_sync.cli.session_factory import with_connection
from hai_sync.remote.endpoint import Remote
from hai_sync.settings import read_settings
from hai_sync.version_store import VersionStore
from hai_sync.watch.control import query_daemon
from hai_sync.watch.events import network_type
from hai_sync.workspace_dir import WorkspaceDir, find_workspace

_PACKAGES = ("hai-platform", "grpcio", "protobuf", "blake3", "pyfastcdc", "zstandard")
# names of tables and facts in the index
_TABLES = ("seen", "base", "theirs", "left_out")
_FACTS = ("revision", "clean", "synced", "looked_ns", "filter")
_DAEMON = ("pid", "mode", "phase", "error", "syncs", "polling", "refused")
_LOG_LINES = 30


@click.command()
@common_options
def bugreport(**options: Any) -> int:
    """Print versions, settings, the size of the saved state, and the end of the daemon's log, for a bug report.

    The report has no contents of files and no tokens, but it may have names of files.
    """
    workspace = find_workspace()
    report = {
        "versions": _section(_versions),
        "workspace": _section(lambda: _workspace(workspace)),
        "index": _section(lambda: _index(workspace.index_path)),
        "kept": _section(lambda: _versions_facts(workspace.versions_dir)),
        "daemon": _section(lambda: _daemon(workspace)),
        "server": _section(
            lambda: with_connection(options["profile"], lambda c: _server(c, workspace))
        ),
        "log": _section(lambda: _log(workspace.state_dir / "daemon.log")),
    }
    one_line = wants_json(options)
    text = json.dumps(
        {"event": "bugreport", **report}, indent=None if one_line else 2, default=repr
    )
    click.echo(text)
    return 0


def _section(read: Callable[[], Any]) -> Any:
    """Return the result of `read`, or its exception, which is informative too."""
    try:
        return read()
    except Exception as error:
        explained_error = explain_error(error)
        return {"failed": f"{type(explained_error).__name__}: {explained_error}"}


def _versions() -> Mapping[str, str]:
    found = {"python": platform.python_version(), "system": platform.platform()}
    return found | {name: _version(name) for name in _PACKAGES}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _workspace(workspace: WorkspaceDir) -> Mapping[str, Any]:
    network = network_type(workspace.root)
    return {
        "name": workspace.name,
        "id": workspace.id,
        "network": network,
        "settings": read_settings(workspace),
    }


def _index(path: Path) -> Mapping[str, Any] | None:
    """Return facts about the index. It is opened read-only."""
    if not path.exists():
        return None
    # otherwise SQLite would create files beside it
    used = path.with_name(f"{path.name}-wal").exists()
    # a file without a WAL is not in use, so SQLite need not lock it
    how = "mode=ro" if used else "immutable=1"
    with closing(sqlite3.connect(f"{path.as_uri()}?{how}", uri=True)) as db:
        counts = {t: db.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in _TABLES}
        facts = dict(db.execute("SELECT name, value FROM facts"))
        check = db.execute("PRAGMA quick_check").fetchone()[0]
    values = {name: facts.get(name, "") for name in _FACTS}
    return {"bytes": path.stat().st_size, "check": check, "rows": counts, **values}


def _versions_facts(folder: Path) -> Mapping[str, int]:
    sizes = [found.size for found in VersionStore(folder).versions()]
    return {"versions": len(sizes), "bytes": sum(sizes)}


def _daemon(workspace: WorkspaceDir) -> Mapping[str, Any] | None:
    answer = query_daemon(workspace.private_dir, {"verb": "status"}, timeout=5)
    if answer is None:
        return None
    lists = {name: len(answer[name]) for name in ("conflicts", "problems", "passed_over")}
    return {name: answer[name] for name in _DAEMON} | lists


async def _server(connection: Connection, workspace: WorkspaceDir) -> Mapping[str, Any]:
    """Return facts about the server, its answering time and its clock."""
    began = time.monotonic()
    info = await connection.unary(
        connection.stub(ServerServiceStub).GetServerInfo, GetServerInfoRequest(), retry=True
    )
    seconds = round(time.monotonic() - began, 3)
    found = await Remote(connection, workspace.name).get()
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
