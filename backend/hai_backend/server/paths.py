"""The files of a server: its home, which it has for itself, and what it shares with other servers (`common`)."""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from hai.host.atomic_write import replace_file
from hai_backend.auth.directory import Directory
from hai_backend.config import Settings
from hai_backend.domain.accounts.user import TokenScope
from hai_backend.domain.errors import Conflict, Invalid, Violation

_KEY_BYTES = 32
_TASK = re.compile(r"[1-9][0-9]{0,11}")  # a directory that is named by one


def claim(home: Path) -> int:
    """Hold this home for one server; the lock goes with the process. Raises Conflict naming the holder."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(home / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise Conflict(
            f"a server already runs in {home}; `hai down` stops it", reason="RUNNING"
        ) from error
    return descriptor


def run_token_key(settings: Settings) -> bytes:
    """The key of run tokens; unless it is given, the first server makes it. Raises Invalid."""
    path = settings.home / settings.run_token_key
    if not settings.run_token_key:
        path = settings.common / "run-token.key"
        if not path.exists():
            _make_key(path)
    try:
        key = path.read_bytes()
    except OSError as error:
        raise _bad_key(f"cannot read {path}: {error.strerror}") from error
    if len(key) < _KEY_BYTES:
        raise _bad_key(f"{path} holds {len(key)} bytes; a key has at least {_KEY_BYTES}")
    return key


def _make_key(path: Path) -> None:
    """Whole before it has its name; of two servers that start together one wins."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    replace_file(made, secrets.token_bytes(_KEY_BYTES))
    with suppress(FileExistsError):
        os.link(made, path)
    made.unlink()


def _bad_key(message: str) -> Invalid:
    return Invalid((Violation("run_token_key", message),), reason="BAD_SETTINGS")


def newest_trace(common: Path) -> int:
    """The newest task that has left files, 0: none. After a restore the database may not know it."""
    folders = [common / kind for kind in ("logs", "checkpoints", "containers")]
    folders += common.glob("workspaces/*/*/tasks")
    return max(
        (int(name) for each in folders for name in _names(each) if _TASK.fullmatch(name)), default=0
    )


def _names(folder: Path) -> list[str]:
    with suppress(OSError):
        return os.listdir(folder)
    return []


async def first_admin(settings: Settings, directory: Directory, now: float) -> None:
    """The first start makes an admin and leaves the token where only its owner can read it."""
    name, path = settings.admin or getpass.getuser(), settings.common / "admin.token"
    secret = await directory.bootstrap(name, now)
    if secret is None and not path.exists():  # a crash came between the token and its file
        made = await directory.create_token(name, TokenScope.ALL, now, description="admin")
        secret = made[1]
    if secret is not None:
        replace_file(path, secret.encode())


def leave_word(directory: Path, address: str, settings: Settings) -> None:
    """server.json: where agents, `hai up` and `hai down` find a server, and how often agents send heartbeats."""
    where = {
        "address": address,
        "pid": os.getpid(),
        "ca": settings.authority,
        "heartbeat": settings.agent_heartbeat,
    }
    replace_file(directory / "server.json", json.dumps(where).encode())


PORT, HTTP_PORT = "port.json", "http-port.json"


def keep_port(home: Path, address: str, file: str = PORT) -> None:
    """For the next start."""
    replace_file(home / file, address.rpartition(":")[2].encode())


def last_port(home: Path, file: str = PORT) -> str:
    """The port of the last start; empty when there was none."""
    try:
        return str(json.loads((home / file).read_text()))
    except (OSError, ValueError):
        return ""
