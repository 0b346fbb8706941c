"""`hai up`: a server on this machine, and a profile that speaks to it."""

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
from hai_tui.cli.server.local_server import NEEDED, Running, command, home_path, last_lines, running
from hai_tui.cli.settings import Settings
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.profile import Profile

_POLL_SECONDS = 0.05
"""How often we look for server.json while a server starts; nothing can tell us before it listens."""

_MIN_LOG_BYTES = 64 * 1024  # bytes of the disk; with less a server that fails cannot even say why


@click.command("up", cls=HaiCommand)
@click.option(
    "--nodes", type=click.IntRange(1), metavar="N", help="Divide this machine into so many nodes."
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
@click.option("--foreground", is_flag=True, help="Stay, and stop the server with Ctrl-C.")
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds to wait.")
@click.pass_obj
def up(
    settings: Settings, /, home: str | None, foreground: bool, timeout: float, **numbers: int | None
) -> int:
    """Start a server on this machine, wait until it answers, and make the profile `local` for it.

    The server runs on after this command and after you log out; `hai down` stops it.
    Options hold for this start; what shall hold for every start stands in HOME/hai.toml (`nodes = 8`).

    \b
    Examples:
      hai up
      hai up --nodes 8 --gpus 4
      hai up --home /data/hai --foreground     for a service manager
    """
    directory = home_path(home)
    if found := running(directory):
        _report_running(settings, directory, found, numbers)
        return os.EX_OK
    if find_spec(NEEDED) is None:
        raise click.ClickException(
            "the server is not installed: pip install 'hai-platform[backend]'"
        )
    flags = [f"--{k.replace('_', '-')}={v}" for k, v in numbers.items() if v is not None]
    _check_profiles()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _starting(settings, directory, timeout) as other:
        if other is not None:
            _report_running(settings, directory, other, numbers)
            return os.EX_OK
        child = _start(settings, directory, flags, foreground, timeout)
    return _stay(child) if foreground else os.EX_OK


def _report_running(
    settings: Settings, home: Path, found: Running, numbers: Mapping[str, int | None]
) -> None:
    note(settings, text("up.running", address=found.address, pid=found.pid))
    _unused(settings, numbers)
    _keep_missing(settings, home, found)
    _report(settings, found)


@contextmanager
def _starting(settings: Settings, home: Path, timeout: float) -> Iterator[Running | None]:
    """The right to start a server in a home, or the server that another `hai up` has started meanwhile.

    The lock goes with our process, so that nothing is left of one that was killed.
    """
    with (home / "up.lock").open("w") as lock:
        limit, noted = time.monotonic() + timeout, False
        while not _locked(lock):
            if not noted:
                note(settings, text("up.waiting", home=home))
                noted = True
            if time.monotonic() > limit:
                raise click.ClickException(
                    f"another `hai up` has not started its server in {home} within {timeout:g} s; "
                    "try again, or wait longer: --timeout"
                )
            time.sleep(_POLL_SECONDS)
        yield running(home)


def _locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unused(settings: Settings, numbers: Mapping[str, int | None]) -> None:
    if supplied := [f"{_flag(k)} {v}" for k, v in numbers.items() if v is not None]:
        note(settings, text("up.unused", given=", ".join(supplied)))


def _flag(name: str) -> str:
    return f"--{name.removesuffix('_per_node')}"


def _start(
    settings: Settings, home: Path, flags: list[str], foreground: bool, timeout: float
) -> subprocess.Popen[bytes]:
    note(settings, text("up.starting", home=home))
    log = home / "server.log"
    with log.open("ab") as output:
        begin = output.tell()
        child = _spawn(command(home, *flags), None if foreground else output)
    if foreground:  # a service manager ends us, and means the server
        signal.signal(signal.SIGTERM, lambda number, frame: child.terminate())
    try:
        found = _wait(child, home, log, begin, timeout)
    except KeyboardInterrupt:
        child.terminate()
        raise
    _keep(_profile(settings, home, found))
    _report_start(settings, found)
    return child


def _check_profiles() -> None:
    """A server whose profile cannot be stored would run unseen, so this is known before it starts."""
    from hai.client.profile import config_path

    path = config_path().absolute()
    directory = next(each for each in (path, *path.parents) if each.exists())
    if not os.access(directory, os.W_OK):
        raise click.ClickException(
            f"no profile can be stored in {path}, {directory} is not writable: "
            "HAI_CONFIG chooses another file"
        )


def _spawn(argv: list[str], output: IO[bytes] | None) -> subprocess.Popen[bytes]:
    """In the background it has a session of its own, so that no terminal can end it."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=output is not None,
    )


def _wait(
    child: subprocess.Popen[bytes], home: Path, log: Path, begin: int, timeout: float
) -> Running:
    limit = time.monotonic() + timeout
    while time.monotonic() < limit:
        found = running(home)
        if found is not None and found.pid == child.pid:
            return found
        try:
            code = child.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        raise _failure(f"the server ended with exit code {code}", log, begin)
    child.terminate()
    raise _failure(f"the server was not ready within {timeout:g} s and was stopped", log, begin)


def _failure(problem: str, log: Path, begin: int) -> click.ClickException:
    excerpt = "".join(f"\n  | {line}" for line in last_lines(log, begin))
    if not excerpt and disk_usage(log.parent).free < _MIN_LOG_BYTES:
        return click.ClickException(f"{problem}: the disk that holds {log.parent} is full")
    return click.ClickException(f"{problem}; the whole log is {log}{excerpt}")


def _profile(settings: Settings, home: Path, found: Running) -> Profile:
    from hai.client.profile import Profile

    token = (home / "admin.token").read_text("utf-8").strip()
    return Profile(_profile_name(settings), found.address, token, found.ca)


def _profile_name(settings: Settings) -> str:
    return settings.profile or "local"


def _keep(profile: Profile) -> None:
    """Store the profile once a call has proven that its address and token work."""
    import asyncio

    from hai.client.client import Client
    from hai.client.profile import save

    async def request() -> None:
        async with Client(profile) as client:
            await client.users.whoami()

    asyncio.run(request())
    save(profile)


def _keep_missing(settings: Settings, home: Path, found: Running) -> None:
    """Who has no profile for it any more, or an old one, is sent here to get one."""
    from hai.client import profile as profiles

    name = _profile_name(settings)
    if name not in profiles.names() or profiles.load(name).server != found.address:
        _check_profiles()
        _keep(_profile(settings, home, found))
        note(settings, text("up.kept", profile=name))


def _report_start(settings: Settings, found: Running) -> None:
    ready = text("up.ready", address=found.address, pid=found.pid, profile=_profile_name(settings))
    note(settings, ready)
    note(settings, text("up.next"))
    _report(settings, found)


def _report(settings: Settings, found: Running) -> None:
    if settings.json:
        dump(settings, {"address": found.address, "pid": found.pid})


def _stay(child: subprocess.Popen[bytes]) -> int:
    """Ctrl-C reaches the server too, since it has our process group; wait for its clean end."""
    while True:
        try:
            code = child.wait()
        except KeyboardInterrupt:
            continue
        return code if code >= 0 else 128 - code  # as a shell writes a death by signal
