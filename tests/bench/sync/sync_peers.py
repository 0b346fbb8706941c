"""Programs that sync a directory over loopback: ours, rsync's daemon, unison, lsyncd. For Syncthing see its module.

A peer that is not installed is left out. Each peer starts and ends its own processes, and CPU times count both sides.
Each run uses new directories, also for a server's home. They stay until all runs have ended, because for five minutes
ext4 checks each recently freed inode before it uses one (`recently_deleted`): to create 20 000 files where as many have
been removed takes about three times as long.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.bench.figures import environment
from tests.ports import free_port
from tests.support.servers import server_process

PROGRAM = str(Path(sys.executable).parent / "haiworkspace")


def wait_for(port: int) -> None:
    """Wait until a server listens on this port."""
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"nobody listens on port {port}")


def cpu_of(processes: list[int]) -> float:
    """Return the CPU seconds of ended children, and of these processes with their children."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = ended.ru_utime + ended.ru_stime
    for number in processes:
        with suppress(psutil.Error):
            process = psutil.Process(number)
            for each in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):
                    total += sum(each.cpu_times()[:4])
    return total


class Peer:
    """A program that syncs between two directories. `sync` returns when the other side has everything."""

    def __init__(self, name: str, sync: Callable[[], None], target: Path, pids: list[int]) -> None:
        self.name = name
        self.sync = sync
        self.target = target
        self.pids = pids

    def timed(self) -> tuple[float, float]:
        """Return wall and CPU seconds of one sync."""
        os.sync()
        began, cpu = time.perf_counter(), cpu_of(self.pids)
        self.sync()
        return time.perf_counter() - began, cpu_of(self.pids) - cpu


@contextmanager
def ours(source: Path, work: Path, daemon: bool = False) -> Iterator[Peer]:
    """`haiworkspace push`, as a user runs it; with `daemon` a running one is asked."""
    with server_process(home=work / "server") as server:
        assert server.process is not None
        env = {**environment(server.profile()), "XDG_DATA_HOME": str(work / "data")}

        def run(*argv: str) -> str:
            done = subprocess.run(
                [PROGRAM, *argv], cwd=source, env=env, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise RuntimeError(done.stdout + done.stderr)
            return done.stdout

        run("init", "bench")
        target = server.home / "workspaces" / "root" / "bench" / "files"
        if daemon:
            run("watch", "start")
        try:
            yield Peer("haiworkspace", lambda: void(run("push")), target, [server.process.pid])
        finally:
            if daemon:
                run("watch", "stop")


def void(answer: object) -> None:
    """Discard the result of a command."""


@contextmanager
def rsync(source: Path, work: Path, durable: bool = False) -> Iterator[Peer]:
    """Its daemon, so that no shell costs anything. It leaves files in the memory of the kernel; ours are on disk when a
    push is acknowledged, and so are its own if `durable`."""
    port, target, config = free_port(), work / "there", work / "rsyncd.conf"
    target.mkdir()
    config.write_text(
        f"use chroot = no\nuid = {os.getuid()}\ngid = {os.getgid()}\naddress = 127.0.0.1\n"
        f"lock file = {work}/lock\n[m]\npath = {target}\nread only = no\n"
    )
    command = ["rsync", "--daemon", "--no-detach", f"--port={port}", f"--config={config}"]
    with running(command, work) as process:
        wait_for(port)
        client = ["rsync", "-a", "--delete", "--exclude=/.hfai", f"{source}/"]
        client.append(f"rsync://127.0.0.1:{port}/m/")
        flush = ["sync", "--file-system", str(target)]

        def sync() -> None:
            _call(client)
            if durable:
                _call(flush)

        yield Peer("rsync", sync, target, [process.pid])


@contextmanager
def unison(source: Path, work: Path) -> Iterator[Peer]:
    """Over a socket, one way."""
    port, target = free_port(), work / "there"
    target.mkdir()
    server = {"UNISON": str(work / "us"), "UNISONLOCALHOSTNAME": "server"}
    client = {"UNISON": str(work / "uc"), "UNISONLOCALHOSTNAME": "client"}
    with running(["unison", "-socket", str(port), "-host", "127.0.0.1"], work, server) as process:
        wait_for(port)
        command = [
            "unison",
            str(source),
            f"socket://127.0.0.1:{port}/{target}",
            "-batch",
            "-silent",
        ]
        command += ["-confirmbigdel=false", "-force", str(source), "-times", "-ignore=Path .hfai"]
        yield Peer("unison", lambda: _call(command, client), target, [process.pid])


@contextmanager
def lsyncd(source: Path, work: Path) -> Iterator[Peer]:
    """inotify and one rsync per batch, at its shortest delay; only its latency is of interest."""
    with rsync(source, work) as inner:
        inner.sync()
        config = work / "lsyncd.lua"
        address = _address(inner)
        config.write_text(
            'settings { nodaemon = true, inotifyMode = "CloseWrite or Modify" }\n'
            f'sync {{ default.rsync, source = "{source}", target = "{address}", delay = 1, '
            "rsync = { archive = true } }\n"
        )
        with running(["lsyncd", str(config)], work):
            time.sleep(4)
            yield Peer("lsyncd", lambda: None, inner.target, inner.pids)


def _address(peer: Peer) -> str:
    connections = psutil.Process(peer.pids[0]).net_connections("tcp")
    port = next(c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN)
    return f"rsync://127.0.0.1:{port}/m/"


@contextmanager
def running(
    command: list[str], work: Path, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process for as long as it is needed."""
    with (work / "peer.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(15)


def _call(command: list[str], env: dict[str, str] | None = None) -> None:
    subprocess.run(
        command, check=True, capture_output=True, env={**os.environ, **(env or {})}, timeout=600
    )


def installed(name: str) -> bool:
    """Return whether the program of a peer is installed."""
    return shutil.which(name) is not None
