"""The files of a server: in its home directory, and in the directory that several servers share (`common`)."""

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
_TASK_DIRECTORY = re.compile(r"[1-9][0-9]{0,11}")


def lock_home(home: Path) -> int:
    """Lock a home directory until the process ends. Raises Conflict if a server runs in it."""
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


def read_run_token_key(settings: Settings) -> bytes:
    """Read the key of run tokens. If the settings name no file, the first server creates the key. Raises Invalid."""
    path = settings.home / settings.run_token_key
    if not settings.run_token_key:
        path = settings.common / "run-token.key"
        if not path.exists():
            _create_key(path)
    try:
        key = path.read_bytes()
    except OSError as error:
        raise _bad_key(f"cannot read {path}: {error.strerror}") from error
    if len(key) < _KEY_BYTES:
        raise _bad_key(f"{path} holds {len(key)} bytes; a key has at least {_KEY_BYTES}")
    return key


def _create_key(path: Path) -> None:
    """Create a key file, unless another server has just created it. No server can read an incomplete file."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    replace_file(temporary, secrets.token_bytes(_KEY_BYTES))
    with suppress(FileExistsError):
        os.link(temporary, path)
    temporary.unlink()


def _bad_key(message: str) -> Invalid:
    return Invalid((Violation("run_token_key", message),), reason="BAD_SETTINGS")


def newest_task_with_files(common: Path) -> int:
    """Return the id of the newest task that has files, or 0 if there is none.

    After the restore of a backup, the database may not contain this task.
    """
    parents = [common / kind for kind in ("logs", "checkpoints", "containers")]
    parents += common.glob("workspaces/*/*/tasks")
    return max(
        (
            int(name)
            for parent in parents
            for name in _names(parent)
            if _TASK_DIRECTORY.fullmatch(name)
        ),
        default=0,
    )


def _names(directory: Path) -> list[str]:
    with suppress(OSError):
        return os.listdir(directory)
    return []


async def create_first_admin(settings: Settings, directory: Directory, now: float) -> None:
    """Create an admin at the first start, and write the token to a file that only its owner can read."""
    name, path = settings.admin or getpass.getuser(), settings.common / "admin.token"
    secret = await directory.bootstrap(name, now)
    if secret is None and not path.exists():  # after a crash between the two steps
        _, secret = await directory.create_token(name, TokenScope.ALL, now, description="admin")
    if secret is not None:
        replace_file(path, secret.encode())


def write_server_file(directory: Path, address: str, settings: Settings) -> None:
    """Write server.json. Agents, `hai up` and `hai down` read from it how to reach the server."""
    contents = {
        "address": address,
        "pid": os.getpid(),
        "ca": settings.authority,
        "heartbeat": settings.agent_heartbeat,
    }
    replace_file(directory / "server.json", json.dumps(contents).encode())


PORT_FILE, HTTP_PORT_FILE = "port.json", "http-port.json"


def save_port(home: Path, address: str, file: str = PORT_FILE) -> None:
    """Save the port of an address for the next start."""
    replace_file(home / file, address.rpartition(":")[2].encode())


def last_port(home: Path, file: str = PORT_FILE) -> str:
    """Return the port of the last start, or an empty string before the first start."""
    try:
        return str(json.loads((home / file).read_text()))
    except (OSError, ValueError):
        return ""
