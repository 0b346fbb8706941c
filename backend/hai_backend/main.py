"""`hai-server`: reads the settings, constructs the server and runs it until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, MutableMapping, Sequence
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
from hai_backend.controllers.aio.loop_watch import LoopWatch
from hai_backend.domain.errors import HaiError, Invalid
from hai_backend.launch.base import Launcher
from hai_backend.launch.local_launcher import sweep
from hai_backend.server.launcher_factory import make_launcher, make_staging
from hai_backend.server.paths import lock_home
from hai_backend.server.process import OpenStore, Server
from hai_backend.store.backup import backup, record_command
from hai_backend.store.connect import open_store


def main(
    argv: Sequence[str] | None = None,
    *,
    open_store: OpenStore = open_store,
    make_launcher: Callable[[Settings, str], Launcher] = make_launcher,
) -> int:
    """Run the command. Return the exit code: 0 on success, 1 if the server failed, 2 for invalid settings."""
    flags = _parser().parse_args(argv)
    home = flags.home.expanduser().resolve()
    try:
        settings = config.load(home, _overrides(flags), os.environ)
        if flags.check:
            return _check(settings)
        if flags.sweep:
            sweep(settings.common, make_staging(settings))
            record_command(settings.database_url, Action.SERVER_SWEEP, str(home))
            return 0
        if flags.backup:
            backup(settings.database_url, flags.backup)
            record_command(settings.database_url, Action.SERVER_BACKUP, str(flags.backup))
            return 0
        _log_as_json()
        lock_home(home)
        asyncio.run(_serve(settings, open_store, make_launcher))
    except Invalid as error:
        lines = "".join(f"\n  {v.field}: {v.message}" for v in error.violations)
        print(f"hai-server: the settings are wrong:{lines}", file=sys.stderr)
        return 2
    except HaiError as error:
        print(f"hai-server: {redact(str(error))}", file=sys.stderr)
        return 1
    except OSError as error:  # a full or read-only disk, or the home of another user
        print(f"hai-server: cannot work in {home}: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("hai-server", description="The server of HAI Platform.")
    version_line = f"%(prog)s, version {version('hai-platform')}"
    parser.add_argument("--version", action="version", version=version_line)
    parser.add_argument("--home", type=Path, required=True, help="where everything is kept")
    parser.add_argument("--port", type=int, help="port on 127.0.0.1")
    parser.add_argument("--listen", help="address:port; off loopback needs TLS or --insecure")
    parser.add_argument("--nodes", type=int, help="divide this machine into so many nodes")
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
    """Print problems of the disks. Return the exit code: 0 if there are none, else 1."""
    directories = settings.directories.items()
    problems = [problem for item in directories if (problem := _disk_problem(*item))]
    for problem in problems:
        print(f"hai-server: {problem}", file=sys.stderr)
    if not problems:
        print("hai-server: the settings are right, and the disks have room")
    return int(bool(problems))


def _disk_problem(name: str, path: Path) -> str:
    """Describe the problem of the disk of a directory. Return an empty string if there is none."""
    # The server will create a missing directory.
    existing = next(each for each in (path, *path.parents) if each.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{name} {path}: this user cannot write {existing}"
    space = disk_space(existing)
    if space.total and space.is_low:
        left = (
            "no room is" if space.free <= 0 else f"{space.free >> 20} of {space.total >> 20} MB are"
        )
        return f"{name} {path}: {left} left beside the reserve of the database; make room"
    return ""


def _file(path: str) -> str:
    """Return an absolute path. Flags are relative to the current directory, settings to the home."""
    return str(Path(path).absolute())


def _overrides(flags: argparse.Namespace) -> dict[str, Any]:
    names = {field.name for field in fields(Settings)} - {"home"}
    overrides = {k: v for k, v in vars(flags).items() if k in names and v is not None}
    if flags.port is not None:
        overrides["listen"] = f"127.0.0.1:{flags.port}"
    return overrides


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
        logger_factory=structlog.WriteLoggerFactory(file=_LogFile(sys.stderr)),  # type: ignore[arg-type]
    )
    logging.getLogger().addHandler(_LibraryLogs(logging.WARNING))


def _without_credentials(
    logger: object, method: str, line: MutableMapping[str, Any]
) -> dict[str, Any]:
    return {name: redact_values(value) for name, value in line.items()}


class _LibraryLogs(logging.Handler):
    """Writes log records of libraries in the server's format. Connection errors are written without a stack trace."""

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        error = record.exc_info[1] if record.exc_info else None
        values: dict[str, Any] = {"library": record.name}
        if error is not None:
            values["why"] = repr(error)
        if error is not None and not _is_connection_error(record.name, error):
            values["exc_info"] = error
        event = record.getMessage().partition("\n")[0]
        structlog.get_logger().log(record.levelno, event, **values)


def _is_connection_error(library: str, error: BaseException) -> bool:
    return isinstance(error, OSError) or library.startswith("sqlalchemy.pool")


class _LogFile:
    """A log file that ignores errors, so that a full disk only loses lines of the log."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


async def _serve(
    settings: Settings,
    open_store: OpenStore,
    make_launcher: Callable[[Settings, str], Launcher],
) -> None:
    app = Server(settings, open_store, lambda: make_launcher(settings, app.address))
    stop = asyncio.Event()
    _handle_signals(app, stop)
    runtime.shorten_switch_interval()
    retain_freed_memory(arenas=1)  # otherwise each thread of gRPC keeps some megabytes
    runtime.raise_file_limit()
    if await _start(app, stop):
        runtime.reduce_garbage_collection()
        watch = LoopWatch(app.metrics.loop_lag, app.metrics.gc_pause)
        watch.start()
        try:
            await app.run_until(stop)
            await app.stop()
        finally:
            watch.stop()


def _handle_signals(app: Server, stop: asyncio.Event) -> None:
    """Stop the server on SIGTERM and SIGINT, and on SIGHUP in a terminal. Otherwise SIGHUP reloads the certificates."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, stop.set if sys.stderr.isatty() else app.reload_files)


async def _start(app: Server, stop: asyncio.Event) -> bool:
    """Start the server. Return False if `stop` is set during the start, which may wait hours for a cluster."""
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
