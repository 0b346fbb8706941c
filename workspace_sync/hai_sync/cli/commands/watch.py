"""`haiworkspace watch start|pause|resume|stop|status|flush`."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

from hai.client.errors import HaiError, TimedOut
from hai.client.profile import config_path
from hai_sync.cli.daemon_reply import tell
from hai_sync.cli.options import CONFLICT, MODE, bwlimit, common, filter_of, filters, outward_links
from hai_sync.cli.reporting import event, left_alone, printable, skipped
from hai_sync.cli.session_factory import claim_memory, connected, open_session
from hai_sync.core.rules import Mode, Policy, Rules
from hai_sync.watch.control import ask, server_choice
from hai_sync.workspace_dir import WorkspaceDir, find

_START_SECONDS = 20.0
_LOG_BYTES = 1 << 20
_SHOWN = "`haiworkspace sync --dry-run` shows them"


@click.group()
def watch() -> None:
    """Keep this workspace in sync while you work."""


@watch.command()
@click.option("--foreground", is_flag=True, help="Do not go to the background.")
@click.option(
    "--mode",
    type=MODE,
    default=Mode.SYNC.value,
    show_default=True,
    help="Which way.",
)
@click.option("--conflict", type=CONFLICT, default=Policy.REFUSE.value, show_default=True)
@bwlimit
@outward_links
@filters
@common
def start(foreground: bool, mode: str, conflict: str, **options: Any) -> int:
    """Start the daemon of this workspace. Conflicts are left to you; everything else goes on."""
    place = find()
    if (running := ask(place.own, {"verb": "status"}, timeout=5)) is not None:
        paused = "; it is paused, `haiworkspace watch resume` goes on" if _paused(running) else ""
        click.echo(f"it runs already, as pid {running['pid']}{paused}")
        return 0
    claim_memory(place)
    if foreground:
        return asyncio.run(_run(place, mode, conflict, options))
    return _spawn(place, _again(mode, conflict, options))


async def _run(place: WorkspaceDir, mode: str, conflict: str, options: dict[str, Any]) -> int:
    from hai_sync.remote.rate_limit import RateLimit
    from hai_sync.session.daemon import Daemon
    from hai_sync.session.options import SyncOptions

    async with connected(options["profile"]) as connection:
        session = open_session(place, connection)
        session.remote.pace = RateLimit(options["bwlimit"])
        rules = Rules(Mode(mode), Policy(conflict))
        server = {} if options["profile"] else _server()
        daemon = Daemon(session, SyncOptions(rules, filter_of(options)), _say, server)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, daemon.stop)
        try:
            await daemon.run()
        finally:
            session.index.close()
    return 0


def _server() -> dict[str, str]:
    """For commands that ask us: whether they would find the same one."""
    config = str(config_path())
    return {"config": config, "surroundings": server_choice(config)}


def _say(line: str) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    print(printable(f"{stamp} {line}"), flush=True)


def _again(mode: str, conflict: str, options: dict[str, Any]) -> list[str]:
    """The same command, for the process that stays."""
    arguments = ["watch", "start", "--foreground", "--mode", mode, "--conflict", conflict]
    arguments += [f"--include={pattern}" for pattern in options["include"]]
    arguments += [f"--exclude={pattern}" for pattern in options["exclude"]]
    arguments += [f"--bwlimit={options['bwlimit']}", f"--links={options['links']}"]
    arguments += ["--no-ignore"] if options["no_hfignore"] else []
    return arguments + ([f"--profile={options['profile']}"] if options["profile"] else [])


def _spawn(place: WorkspaceDir, arguments: list[str]) -> int:
    """In a session of its own, until it answers."""
    place.state.mkdir(parents=True, exist_ok=True)
    path = place.state / "daemon.log"
    if path.exists() and path.stat().st_size > _LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    command = [sys.executable, "-m", "hai_sync.cli.main", *arguments]
    with path.open("ab") as log:
        child = subprocess.Popen(
            command,
            cwd=place.root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    began = time.monotonic()
    while (answer := ask(place.own, {"verb": "status"}, timeout=5)) is None:
        if child.poll() is not None or time.monotonic() - began > _START_SECONDS:
            raise HaiError(f"the daemon did not start: {_last_words(path)}", hint=f"see {path}")
        time.sleep(0.02)  # until it listens; it tells nobody
    click.echo(f"watching {printable(str(place.root))} as pid {answer['pid']}; log: {path}")
    return 0


def _last_words(path: Path) -> str:
    lines = path.read_text("utf-8", "replace").splitlines()
    return lines[-1] if lines else "it said nothing"


@watch.command()
@common
def pause(**options: Any) -> int:
    """Let the daemon sync only when it is asked, by `push` or `flush`, until `resume` or its end."""
    return _turn("pause", "paused; `haiworkspace watch resume` goes on")


@watch.command()
@common
def resume(**options: Any) -> int:
    """Let the daemon go on by itself after a `pause`."""
    return _turn("resume", "watching again")


def _turn(verb: str, words: str) -> int:
    answer = ask(find().own, {"verb": verb}, timeout=5)
    if answer is None:
        raise HaiError("no daemon runs here", hint="`haiworkspace watch start`")
    if verb == "pause" and not _paused(answer):
        raise HaiError(
            "the daemon is of an older version, which cannot pause",
            hint="`haiworkspace watch stop` and `haiworkspace watch start`",
        )
    click.echo(words)
    return 0


def _paused(answer: dict[str, Any]) -> bool:
    return bool(answer.get("paused"))  # one of an older version does not say


@watch.command()
@common
def stop(**options: Any) -> int:
    """Stop the daemon of this workspace."""
    place = find()
    if ask(place.own, {"verb": "stop"}, timeout=10) is None:
        click.echo("no daemon runs here", err=True)
        return 0
    ends = time.monotonic() + 10
    while place.socket.exists():
        if time.monotonic() > ends:
            raise TimedOut("the daemon does not stop; it may be in the middle of a large file")
        time.sleep(0.02)
    click.echo("stopped")
    return 0


@watch.command()
@common
def status(**options: Any) -> int:
    """Tell what the daemon of this workspace does. Exits with 3 if there is none."""
    answer = ask(find().own, {"verb": "status"}, timeout=5)
    as_json = options["as_json"] or options["output"] == "json"
    if as_json:
        event("daemon", running=answer is not None, **(answer or {}))
    elif answer is None:
        click.echo("no daemon runs here")
    else:
        click.echo(_line(answer))
    return 0 if answer is not None else 3


def _line(answer: dict[str, Any]) -> str:
    words = (
        f"pid {answer['pid']}, {answer['mode']}, {answer['phase']}, revision {answer['revision']}"
    )
    words += ", with filters of its own" if answer.get("filtered") else ""
    words += f", {answer['syncs']} syncs, {answer['files']} files"
    if answer["polling"]:
        words += f"\nlooks every few seconds: {answer['polling']}"
    if answer["error"]:
        words += f"\ncannot sync now: {answer['error']}"
    if answer["refused"]:
        words += f"\nnot synced: {answer['refused']}; {_SHOWN}"
    for path in answer["conflicts"]:
        words += f"\nconflict: {printable(path)}"
    words += "".join(f"\n{skipped(*each)}" for each in answer.get("skipped", {}).items())
    passed_over = answer.get("passed_over", {})  # not of a daemon of an older version
    for path, why in (*answer["problems"].items(), *passed_over.items()):
        words += f"\n{left_alone(path, why)}"
    return words


@watch.command()
@common
def flush(**options: Any) -> int:
    """Wait until everything that is saved now, here and on the cluster, is on the other side."""
    answer = ask(find().own, {"verb": "flush", "look": True})
    if answer is None:
        raise HaiError("no daemon runs here", hint="`haiworkspace watch start`")
    as_json = options["as_json"] or options["output"] == "json"
    return tell(answer, "watch", as_json)
