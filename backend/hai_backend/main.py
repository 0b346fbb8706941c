"""`hai-server`: reads the settings, constructs the server and runs it until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import structlog

from hai.host.disk_reserve import disk_space
from hai.host.memory import retain_freed_memory
from hai.redaction import redact, redact_values
from hai_backend import config, runtime
from hai_backend.api.audit.rows import Action
from hai_backend.config import Settings
from hai_backend.domain.errors import HaiError, Invalid
from hai_backend.launch.local_launcher import sweep
from hai_backend.server.launcher_factory import make_launcher
from hai_backend.server.paths import claim
from hai_backend.server.process import OpenStore, Server
from hai_backend.store.connect import open_store
from hai_backend.store.sql.backup import backup, record_command


def main(argv: Sequence[str] | None = None, *, open_store: OpenStore = open_store) -> int:
    """Exit codes: 0 stopped as asked, 1 could not start or run, 2 bad settings or flags."""
    flags = _parser().parse_args(argv)
    home = flags.home.expanduser().resolve()
    try:
        settings = config.load(home, _overrides(flags), os.environ)
        if flags.check:
            return _check(settings)
        if flags.sweep:
            sweep(settings.common)
            record_command(settings.database_url, Action.SERVER_SWEEP, str(home))
            return 0
        if flags.backup:
            backup(settings.database_url, flags.backup)
            record_command(settings.database_url, Action.SERVER_BACKUP, str(flags.backup))
            return 0
        _log_as_json()
        claim(home)
        asyncio.run(_serve(settings, open_store))
    except Invalid as error:
        lines = "".join(f"\n  {v.field}: {v.message}" for v in error.violations)
        print(f"hai-server: the settings are wrong:{lines}", file=sys.stderr)
        return 2
    except HaiError as error:
        print(f"hai-server: {redact(str(error))}", file=sys.stderr)
        return 1
    except OSError as error:  # a full or read-only disk, or a home that is not ours
        print(f"hai-server: cannot work in {home}: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("hai-server", description="The server of HAI Platform.")
    told = f"%(prog)s, version {version('hai-platform')}"
    parser.add_argument("--version", action="version", version=told)
    parser.add_argument("--home", type=Path, required=True, help="where everything is kept")
    parser.add_argument("--port", type=int, help="port on 127.0.0.1")
    parser.add_argument("--listen", help="address:port; off loopback needs TLS or --insecure")
    parser.add_argument("--nodes", type=int, help="nodes that this machine is divided into")
    parser.add_argument("--gpus-per-node", type=int, help="declared GPUs, if the machine has none")
    parser.add_argument("--database", help="sqlite:///FILE or postgresql://…")
    parser.add_argument("--metrics-port", type=int, help="serve /metrics on this port")
    parser.add_argument("--tls-cert", type=_file, metavar="FILE", help="its certificate, PEM")
    parser.add_argument("--tls-key", type=_file, metavar="FILE", help="the key of that, PEM")
    parser.add_argument(
        "--insecure", action="store_true", default=None, help="plaintext off loopback"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="read the settings and look at the disks; start nothing",
    )
    parser.add_argument(
        "--sweep", action="store_true", help="end every leftover agent and program of this home"
    )
    parser.add_argument(
        "--backup",
        type=Path,
        metavar="FILE",
        help="copy the SQLite database to a new file; the server may run meanwhile",
    )
    return parser


def _check(settings: Settings) -> int:
    """0: the settings are right, and there is room on all disks."""
    found = [trouble for item in settings.directories.items() if (trouble := _trouble(*item))]
    for trouble in found:
        print(f"hai-server: {trouble}", file=sys.stderr)
    if not found:
        print("hai-server: the settings are right, and the disks have room")
    return int(bool(found))


def _trouble(name: str, path: Path) -> str:
    """What an operator should do about the disk of a directory; empty: nothing. One that is missing will be made."""
    existing = next(each for each in (path, *path.parents) if each.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{name} {path}: this user cannot write {existing}"
    room = disk_space(existing)
    if room.total and room.is_low:
        told = "no room is" if room.free <= 0 else f"{room.free >> 20} of {room.total >> 20} MB are"
        return f"{name} {path}: {told} left beside the reserve of the database; make room"
    return ""


def _file(path: str) -> str:
    """Settings are relative to the home, flags to where one types them."""
    return str(Path(path).absolute())


def _overrides(flags: argparse.Namespace) -> dict[str, Any]:
    names = {field.name for field in fields(Settings)} - {"home"}
    wanted = {k: v for k, v in vars(flags).items() if k in names and v is not None}
    if flags.port is not None:
        wanted["listen"] = f"127.0.0.1:{flags.port}"
    return wanted


def _log_as_json() -> None:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _without_credentials,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=_Log(sys.stderr)),  # type: ignore[arg-type]
    )
    logging.getLogger().addHandler(_Libraries(logging.WARNING))


def _without_credentials(
    logger: object, method: str, line: MutableMapping[str, Any]
) -> dict[str, Any]:
    return {name: redact_values(value) for name, value in line.items()}


class _Libraries(logging.Handler):
    """What libraries say, as our own lines. That of lost connections is one line: who used them says more."""

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        error = record.exc_info[1] if record.exc_info else None
        said: dict[str, Any] = {"library": record.name}
        if error is not None:
            said["why"] = repr(error)
        if error is not None and not _of_a_connection(record.name, error):
            said["exc_info"] = error
        event = record.getMessage().partition("\n")[0]
        structlog.get_logger().log(record.levelno, event, **said)


def _of_a_connection(library: str, error: BaseException) -> bool:
    return isinstance(error, OSError) or library.startswith("sqlalchemy.pool")


class _Log:
    """A full disk loses lines of the log, never the loop that wrote them."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


async def _serve(settings: Settings, open_store: OpenStore) -> None:
    app = Server(settings, open_store, lambda: make_launcher(settings, app.address))
    stop = asyncio.Event()
    _hear_signals(app, stop)
    runtime.share_quickly()
    retain_freed_memory(arenas=1)  # else each thread of gRPC's keeps some megabytes
    runtime.open_many()
    if await _started(app, stop):
        runtime.collect_rarely()
        await app.until(stop)
        await app.stop()


def _hear_signals(app: Server, stop: asyncio.Event) -> None:
    """SIGHUP says that a terminal has gone; without one, as to other daemons, that files were replaced."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, stop.set if sys.stderr.isatty() else app.look_again)


async def _started(app: Server, stop: asyncio.Event) -> bool:
    """False when it shall stop before it has begun: a cluster may let it wait for hours."""
    starting, stopping = asyncio.ensure_future(app.start()), asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
        return False
    starting.result()
    return True


if __name__ == "__main__":
    sys.exit(main())
