"""`hai up`: starts a server on this machine and makes a profile for it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from shutil import disk_usage
from typing import IO, TYPE_CHECKING

import click

from hai_tui.cli.command import HaiCommand
from hai_tui.cli.output.output import dump, note
from hai_tui.cli.server.local_server import (
    REQUIRED_MODULE,
    RunningServer,
    command,
    find_server,
    home_path,
    last_lines,
)
from hai_tui.cli.settings import Settings
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.profile import Profile

_POLL_SECONDS = 0.05
"""How often to look for server.json while a server starts. The server cannot tell us before it listens."""

_MIN_LOG_BYTES = 64 * 1024  # with less free disk space, a failing server cannot write its log


@click.command("up", cls=HaiCommand)
@click.option(
    "--nodes",
    type=click.IntRange(1),
    metavar="N",
    help="Divide this machine into N nodes.  [default: 1 if it has GPUs, else 4]",
)
@click.option(
    "--gpus",
    "gpus_per_node",
    type=click.IntRange(0),
    metavar="N",
    help="GPUs of each node; simulated where this machine has none.",
)
@click.option(
    "--home", type=click.Path(file_okay=False), help="Default: $HAI_HOME, or your data directory."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="N", help="Where it listens on loopback."
)
@click.option("--foreground", is_flag=True, help="Keep running, and stop the server with Ctrl-C.")
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds to wait.")
@click.pass_obj
def up(
    settings: Settings, /, home: str | None, foreground: bool, timeout: float, **numbers: int | None
) -> int:
    """Start a server on this machine, wait until it answers, and make the profile `local` for it.

    The server runs on after this command and after you log out; `hai down` stops it.
    Options hold for this start; HOME/hai.toml (`nodes = 8`) holds for every start.

    \b
    Examples:
      hai up
      hai up --nodes 8 --gpus 4
      hai up --home /data/hai --foreground     for a service manager
    """
    directory = home_path(home)
    if server := find_server(directory):
        _report_running(settings, directory, server, numbers)
        return os.EX_OK
    if find_spec(REQUIRED_MODULE) is None:
        raise click.ClickException(
            "the server is not installed: pip install 'hai-platform[backend]'"
        )
    flags = [f"--{k.replace('_', '-')}={v}" for k, v in numbers.items() if v is not None]
    _check_profiles()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _start_lock(settings, directory, timeout) as other_server:
        if other_server is not None:
            _report_running(settings, directory, other_server, numbers)
            return os.EX_OK
        child = _start_server(settings, directory, flags, foreground, timeout)
    return _wait_for_exit(child) if foreground else os.EX_OK


def _report_running(
    settings: Settings, home: Path, server: RunningServer, numbers: Mapping[str, int | None]
) -> None:
    """Report a server that runs already, and repair its profile if necessary."""
    note(settings, text("up.running", address=server.address, pid=server.pid))
    _note_unused(settings, numbers)
    _restore_profile(settings, home, server)
    _print_json(settings, server)


@contextmanager
def _start_lock(settings: Settings, home: Path, timeout: float) -> Iterator[RunningServer | None]:
    """Lock a home while a server starts. Yield the server that another `hai up` has started meanwhile, or None.

    The kernel releases the lock when our process ends, even if it is killed.
    """
    with (home / "up.lock").open("w") as lock:
        deadline, noted = time.monotonic() + timeout, False
        while not _try_lock(lock):
            if not noted:
                note(settings, text("up.waiting", home=home))
                noted = True
            if time.monotonic() > deadline:
                raise click.ClickException(
                    f"another `hai up` has not started its server in {home} within {timeout:g} s; "
                    "try again, or wait longer: --timeout"
                )
            time.sleep(_POLL_SECONDS)
        yield find_server(home)


def _try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _note_unused(settings: Settings, numbers: Mapping[str, int | None]) -> None:
    """Note the options that a running server does not use."""
    if supplied := [f"{_flag(k)} {v}" for k, v in numbers.items() if v is not None]:
        note(settings, text("up.unused", given=", ".join(supplied)))


def _flag(name: str) -> str:
    return f"--{name.removesuffix('_per_node')}"


def _start_server(
    settings: Settings, home: Path, flags: list[str], foreground: bool, timeout: float
) -> subprocess.Popen[bytes]:
    """Start the server, wait until it is ready, and save a profile for it."""
    note(settings, text("up.starting", home=home))
    log = home / "server.log"
    with log.open("ab") as output:
        log_start = output.tell()
        child = _spawn(command(home, *flags), None if foreground else output)
    if foreground:  # a service manager that ends this process wants to end the server
        signal.signal(signal.SIGTERM, lambda number, frame: child.terminate())
    try:
        server = _wait_until_ready(child, home, log, log_start, timeout)
    except KeyboardInterrupt:
        child.terminate()
        raise
    _verify_and_save(_profile(settings, home, server))
    _report_start(settings, server)
    return child


def _check_profiles() -> None:
    """Raise an error if no profile can be saved. A server without a profile would run unnoticed."""
    from hai.client.profile import config_path

    path = config_path().absolute()
    directory = next(each for each in (path, *path.parents) if each.exists())
    if not os.access(directory, os.W_OK):
        raise click.ClickException(
            f"no profile can be stored in {path}, {directory} is not writable: "
            "HAI_CONFIG chooses another file"
        )


def _spawn(argv: list[str], output: IO[bytes] | None) -> subprocess.Popen[bytes]:
    """Start the server. In the background it gets a session of its own, so that no terminal can end it."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=output is not None,
    )


def _wait_until_ready(
    child: subprocess.Popen[bytes], home: Path, log: Path, log_start: int, timeout: float
) -> RunningServer:
    """Wait until the server has written its address. Raise ClickException if it ends or takes too long."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        server = find_server(home)
        if server is not None and server.pid == child.pid:
            return server
        try:
            code = child.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        raise _start_error(f"the server ended with exit code {code}", log, log_start)
    child.terminate()
    raise _start_error(
        f"the server was not ready within {timeout:g} s and was stopped", log, log_start
    )


def _start_error(problem: str, log: Path, log_start: int) -> click.ClickException:
    """Return an error with the last lines of the log."""
    excerpt = "".join(f"\n  | {line}" for line in last_lines(log, log_start))
    if not excerpt and disk_usage(log.parent).free < _MIN_LOG_BYTES:
        return click.ClickException(f"{problem}: the disk that holds {log.parent} is full")
    return click.ClickException(f"{problem}; the whole log is {log}{excerpt}")


def _profile(settings: Settings, home: Path, server: RunningServer) -> Profile:
    from hai.client.profile import Profile

    token = (home / "admin.token").read_text("utf-8").strip()
    return Profile(_profile_name(settings), server.address, token, server.ca)


def _profile_name(settings: Settings) -> str:
    return settings.profile or "local"


def _verify_and_save(profile: Profile) -> None:
    """Save the profile after a call has shown that its address and token work."""
    import asyncio

    from hai.client.client import Client
    from hai.client.profile import save

    async def request() -> None:
        async with Client(profile) as client:
            await client.users.whoami()

    asyncio.run(request())
    save(profile)


def _restore_profile(settings: Settings, home: Path, server: RunningServer) -> None:
    """Save a profile for a running server if it is missing or has another address."""
    from hai.client import profile as profiles

    name = _profile_name(settings)
    if name not in profiles.names() or profiles.load(name).server != server.address:
        _check_profiles()
        _verify_and_save(_profile(settings, home, server))
        note(settings, text("up.kept", profile=name))


def _report_start(settings: Settings, server: RunningServer) -> None:
    ready = text(
        "up.ready", address=server.address, pid=server.pid, profile=_profile_name(settings)
    )
    note(settings, ready)
    note(settings, text("up.next"))
    _print_json(settings, server)


def _print_json(settings: Settings, server: RunningServer) -> None:
    if settings.json:
        dump(settings, {"address": server.address, "pid": server.pid})


def _wait_for_exit(child: subprocess.Popen[bytes]) -> int:
    """Wait until the server has ended. Ctrl-C reaches it as well, because it belongs to our process group."""
    while True:
        try:
            code = child.wait()
        except KeyboardInterrupt:
            continue
        return code if code >= 0 else 128 - code  # a shell reports a signal like this
