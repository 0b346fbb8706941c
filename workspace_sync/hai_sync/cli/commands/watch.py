"""The commands `haiworkspace watch start|pause|resume|stop|status|flush`."""

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
from hai_sync.cli.daemon_reply import print_reply
from hai_sync.cli.options import (
    CONFLICT,
    MODE,
    build_filter,
    bwlimit_option,
    common_options,
    filter_options,
    links_option,
    wants_json,
)
from hai_sync.cli.reporting import not_synced_line, print_event, printable, skipped_line
from hai_sync.cli.session_factory import claim_workspace_index, connect, open_session
from hai_sync.core.reconcile_options import Mode, Policy, Rules
from hai_sync.watch.control import query_daemon, server_choice
from hai_sync.workspace_dir import WorkspaceDir, find_workspace

_START_SECONDS = 20.0
_LOG_BYTES = 1 << 20
_DRY_RUN_HINT = "`haiworkspace sync --dry-run` shows them"


@click.group()
def watch() -> None:
    """Keep this workspace in sync while you work."""


@watch.command()
@click.option("--foreground", is_flag=True, help="Run in the foreground.")
@click.option(
    "--mode",
    type=MODE,
    default=Mode.SYNC.value,
    show_default=True,
    help="Direction of the sync.",
)
@click.option("--conflict", type=CONFLICT, default=Policy.REFUSE.value, show_default=True)
@bwlimit_option
@links_option
@filter_options
@common_options
def start(foreground: bool, mode: str, conflict: str, **options: Any) -> int:
    """Start the daemon of this workspace. It leaves conflicts to you and syncs all other paths."""
    workspace = find_workspace()
    if (running := query_daemon(workspace.private_dir, {"verb": "status"}, timeout=5)) is not None:
        paused = "; it is paused, `haiworkspace watch resume` continues" if _paused(running) else ""
        click.echo(f"already running (pid {running['pid']}){paused}")
        return 0
    claim_workspace_index(workspace)
    if foreground:
        return asyncio.run(_run(workspace, mode, conflict, options))
    return _spawn(workspace, _foreground_arguments(mode, conflict, options))


async def _run(workspace: WorkspaceDir, mode: str, conflict: str, options: dict[str, Any]) -> int:
    """Run the daemon in this process until a signal stops it."""
    from hai_sync.remote.endpoint import RateLimit
    from hai_sync.session.daemon import Daemon
    from hai_sync.session.options import SyncOptions

    async with connect(options["profile"]) as connection:
        session = open_session(workspace, connection)
        session.remote.rate_limit = RateLimit(options["bwlimit"])
        rules = Rules(Mode(mode), Policy(conflict))
        server = {} if options["profile"] else _server()
        daemon = Daemon(session, SyncOptions(rules, build_filter(options)), _log, server)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, daemon.stop)
        try:
            await daemon.run()
        finally:
            session.index.close()
    return 0


def _server() -> dict[str, str]:
    """Return what lets commands check whether they would connect to the same server."""
    config = str(config_path())
    return {"config": config, "surroundings": server_choice(config)}


def _log(line: str) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    print(printable(f"{stamp} {line}"), flush=True)


def _foreground_arguments(mode: str, conflict: str, options: dict[str, Any]) -> list[str]:
    """Return the arguments of the background process."""
    arguments = ["watch", "start", "--foreground", "--mode", mode, "--conflict", conflict]
    arguments += [f"--include={pattern}" for pattern in options["include"]]
    arguments += [f"--exclude={pattern}" for pattern in options["exclude"]]
    arguments += [f"--bwlimit={options['bwlimit']}", f"--links={options['links']}"]
    arguments += ["--no-ignore"] if options["no_hfignore"] else []
    return arguments + ([f"--profile={options['profile']}"] if options["profile"] else [])


def _spawn(workspace: WorkspaceDir, arguments: list[str]) -> int:
    """Start the daemon in a session of its own, and wait for its first reply."""
    workspace.state_dir.mkdir(parents=True, exist_ok=True)
    path = workspace.state_dir / "daemon.log"
    if path.exists() and path.stat().st_size > _LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    command = [sys.executable, "-m", "hai_sync.cli.main", *arguments]
    with path.open("ab") as log:
        child = subprocess.Popen(
            command,
            cwd=workspace.root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    began = time.monotonic()
    while (reply := query_daemon(workspace.private_dir, {"verb": "status"}, timeout=5)) is None:
        if child.poll() is not None or time.monotonic() - began > _START_SECONDS:
            raise HaiError(f"the daemon did not start: {_last_line(path)}", hint=f"see {path}")
        time.sleep(0.02)  # the daemon does not signal that it listens
    click.echo(f"watching {printable(str(workspace.root))} as pid {reply['pid']}; log: {path}")
    return 0


def _last_line(path: Path) -> str:
    lines = path.read_text("utf-8", "replace").splitlines()
    return lines[-1] if lines else "it printed nothing"


@watch.command()
@common_options
def pause(**options: Any) -> int:
    """Let the daemon sync only on `push` or `flush`, until `resume`."""
    return _send("pause", "paused; `haiworkspace watch resume` continues")


@watch.command()
@common_options
def resume(**options: Any) -> int:
    """Let the daemon sync by itself again after `pause`."""
    return _send("resume", "watching again")


def _send(verb: str, text: str) -> int:
    reply = query_daemon(find_workspace().private_dir, {"verb": verb}, timeout=5)
    if reply is None:
        raise HaiError("no daemon runs here", hint="`haiworkspace watch start`")
    if verb == "pause" and not _paused(reply):
        raise HaiError(
            "the daemon has an older version, which cannot pause",
            hint="`haiworkspace watch stop` and `haiworkspace watch start`",
        )
    click.echo(text)
    return 0


def _paused(reply: dict[str, Any]) -> bool:
    return bool(reply.get("paused"))  # missing in the reply of an older version


@watch.command()
@common_options
def stop(**options: Any) -> int:
    """Stop the daemon of this workspace."""
    workspace = find_workspace()
    if query_daemon(workspace.private_dir, {"verb": "stop"}, timeout=10) is None:
        click.echo("no daemon runs here", err=True)
        return 0
    deadline = time.monotonic() + 10
    while workspace.socket.exists():
        if time.monotonic() > deadline:
            raise TimedOut("the daemon has not stopped yet; it may be transferring a large file")
        time.sleep(0.02)
    click.echo("stopped")
    return 0


@watch.command()
@common_options
def status(**options: Any) -> int:
    """Show what the daemon of this workspace does. The exit code is 3 if no daemon runs."""
    reply = query_daemon(find_workspace().private_dir, {"verb": "status"}, timeout=5)
    as_json = wants_json(options)
    if as_json:
        print_event("daemon", running=reply is not None, **(reply or {}))
    elif reply is None:
        click.echo("no daemon runs here")
    else:
        click.echo(_line(reply))
    return 0 if reply is not None else 3


def _line(reply: dict[str, Any]) -> str:
    text = f"pid {reply['pid']}, {reply['mode']}, {reply['phase']}, revision {reply['revision']}"
    text += ", with its own filters" if reply.get("filtered") else ""
    text += f", {reply['syncs']} syncs, {reply['files']} files"
    if reply["polling"]:
        text += f"\npolls every few seconds: {reply['polling']}"
    if reply["error"]:
        text += f"\ncannot sync now: {reply['error']}"
    if reply["refused"]:
        text += f"\nnot synced: {reply['refused']}; {_DRY_RUN_HINT}"
    for path in reply["conflicts"]:
        text += f"\nconflict: {printable(path)}"
    text += "".join(f"\n{skipped_line(*each)}" for each in reply.get("skipped", {}).items())
    passed_over = reply.get("passed_over", {})  # missing in the reply of an older version
    for path, reason in (*reply["problems"].items(), *passed_over.items()):
        text += f"\n{not_synced_line(path, reason)}"
    return text


@watch.command()
@common_options
def flush(**options: Any) -> int:
    """Wait until all files saved by now, here and on the cluster, are synced."""
    reply = query_daemon(find_workspace().private_dir, {"verb": "flush", "look": True})
    if reply is None:
        raise HaiError("no daemon runs here", hint="`haiworkspace watch start`")
    as_json = wants_json(options)
    return print_reply(reply, "watch", as_json)
