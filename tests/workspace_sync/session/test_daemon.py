"""Tests of the daemon, with and without events."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import shutil
import socket
import sqlite3
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hai.client.connection.cancellation import CancelledWithin
from hai.client.errors import NotFound, Unauthenticated, Unreachable
from hai.host.inotify import Inotify
from hai_sync.cli import errors as failures
from hai_sync.cli.daemon_reply import print_reply
from hai_sync.cli.main import main
from hai_sync.core.reconcile_options import Mode, Rules
from hai_sync.remote.endpoint import Remote
from hai_sync.session import daemon as daemon_module
from hai_sync.session.daemon import Daemon
from hai_sync.session.options import SyncOptions
from hai_sync.session.session import Session
from hai_sync.watch import inotify, watchfiles_backend
from hai_sync.watch.control import ShortSocketPath, query_daemon, server_choice

MOST_EVENTS = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


@contextlib.asynccontextmanager
async def running(laptop, mode: Mode = Mode.SYNC) -> AsyncIterator[Daemon]:
    """Run a daemon in this process, and wait until it answers and is idle."""
    # commands would find the same socket
    server = {
        "config": "",
        "surroundings": server_choice(""),
    }
    daemon = Daemon(laptop.session, SyncOptions(Rules(mode)), lambda line: None, server)
    work = asyncio.create_task(daemon.run())
    try:
        await until(lambda: laptop.session.workspace.socket.exists() and daemon.state.syncs > 0)
        yield daemon
    finally:
        daemon.stop()
        await work


async def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - a disk tells nobody
            await asyncio.sleep(0.005)


async def flush(laptop) -> dict:
    return await asyncio.to_thread(
        query_daemon, laptop.session.workspace.private_dir, {"verb": "flush"}
    )


async def test_local_and_remote_changes_are_synced(laptops) -> None:
    one, two = await laptops("one"), await laptops("two")
    async with running(one), running(two):
        one.write("d/a.py", "1")
        await until(lambda: two.read() == {"d/a.py": b"1"})
        two.write("d/a.py", "2")
        await until(lambda: one.read() == {"d/a.py": b"2"})
        (one.root / "d/a.py").unlink()
        await until(lambda: two.read() == {})


@pytest.mark.parametrize(
    "backend", [inotify.changed_paths, watchfiles_backend.changed_paths], ids=["linux", "elsewhere"]
)
async def test_a_flush_includes_all_files_saved_before(laptop, backend, monkeypatch) -> None:
    monkeypatch.setattr("hai_sync.watch.events.changed_paths", backend)
    async with running(laptop):
        for number in range(5):
            laptop.write("a", str(number))
            answer = await flush(laptop)
            assert laptop.on_cluster() == {"a": str(number).encode()}
            assert answer["revision"] == number + 1


@pytest.mark.parametrize(
    ("argv", "mode", "arrives"),
    [
        pytest.param(("watch", "flush"), Mode.SYNC, True, id="flush"),
        pytest.param(("watch", "flush", "--json"), Mode.SYNC, True, id="flush for scripts"),
        pytest.param(("watch", "flush"), Mode.PULL, True, id="flush of one that pulls"),
        pytest.param(("sync",), Mode.SYNC, True, id="sync"),
        pytest.param(("watch", "flush"), Mode.PUSH, False, id="flush of one that pushes"),
    ],
)
async def test_a_flush_syncs_in_both_directions(
    laptop, argv, mode: Mode, arrives: bool, monkeypatch, capsys
) -> None:
    """A push used to report success although a file waited on the cluster."""
    monkeypatch.chdir(laptop.root)
    # otherwise the daemon may have synced the file itself
    monkeypatch.setattr(Remote, "watch", _silent)
    laptop.write("mine", "1")
    await laptop.sync()
    async with running(laptop, mode):
        for number in range(3):
            (laptop.cluster / f"theirs-{number}").write_text("2")
            assert await asyncio.to_thread(main, argv) == 0
            assert (f"theirs-{number}" in laptop.read()) == arrives
    assert "in sync" in capsys.readouterr().out or "--json" in argv


async def _silent(remote: Remote) -> AsyncIterator[int]:
    await asyncio.Event().wait()
    yield 0


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"[]\n", id="no object"),
        pytest.param(b"{\n", id="no JSON"),
        pytest.param(b"\xff\n", id="no text"),
        pytest.param(b"[" * 60_000 + b"\n", id="deep"),
        pytest.param(b" " * 100_000 + b"\n", id="long"),
        pytest.param(b"", id="nothing"),
    ],
)
async def test_an_invalid_request_closes_the_connection(laptop, line: bytes) -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with running(laptop):
        with ShortSocketPath(laptop.session.workspace.private_dir) as path:
            reader, writer = await asyncio.open_unix_connection(path)
        writer.write(line)
        writer.write_eof()
        with contextlib.suppress(
            ConnectionError
        ):  # the daemon may close before it has read everything
            assert await reader.read() == b""
        writer.close()
        output = await asyncio.to_thread(
            query_daemon, laptop.session.workspace.private_dir, {"verb": "status"}
        )
    assert (output["phase"], failures) == ("watching", [])


async def test_a_daemon_answers_while_it_waits_for_the_lock(laptop, locked_by_other) -> None:
    async with running(laptop) as daemon:
        with locked_by_other(laptop.session.workspace.state_dir):
            laptop.write("a", "1")
            await until(lambda: daemon.state.phase == "syncing")
            output = await asyncio.to_thread(
                query_daemon, laptop.session.workspace.private_dir, {"verb": "status"}
            )
            assert output["phase"] == "syncing"
            assert laptop.on_cluster() == {}
        await flush(laptop)
        assert laptop.on_cluster() == {"a": b"1"}


async def test_a_paused_daemon_syncs_only_on_request(laptop) -> None:
    async with running(laptop) as daemon:
        private_dir = laptop.session.workspace.private_dir
        assert (await asyncio.to_thread(query_daemon, private_dir, {"verb": "pause"}))[
            "phase"
        ] == "paused"
        before = daemon.state.syncs
        laptop.write("a", "1")
        await until(daemon._wake.is_set)
        await asyncio.sleep(3 * daemon_module.BATCH_SECONDS)
        assert (daemon.state.syncs, laptop.on_cluster()) == (before, {})
        await flush(laptop)
        assert laptop.on_cluster() == {"a": b"1"}
        laptop.write("b", "2")
        await until(daemon._wake.is_set)
        assert (await asyncio.to_thread(query_daemon, private_dir, {"verb": "resume"}))[
            "phase"
        ] == "watching"
        await until(lambda: laptop.on_cluster() == {"a": b"1", "b": b"2"})


async def test_a_pause_does_not_stop_a_running_sync(laptop, locked_by_other) -> None:
    async with running(laptop) as daemon:
        private_dir = laptop.session.workspace.private_dir
        with locked_by_other(laptop.session.workspace.state_dir):
            laptop.write("a", "1")
            await until(lambda: daemon.state.phase == "syncing")
            output = await asyncio.to_thread(query_daemon, private_dir, {"verb": "pause"})
            assert (output["phase"], output["paused"]) == ("syncing", True)
        await until(lambda: laptop.on_cluster() == {"a": b"1"} and daemon.state.phase != "syncing")
        output = await asyncio.to_thread(query_daemon, private_dir, {"verb": "status"})
        assert (output["phase"], output["paused"]) == ("paused", True)


async def test_renames_by_editors_and_bursts_are_synced(laptop) -> None:
    async with running(laptop):
        for number in range(200):
            laptop.write(f"d{number % 7}/f{number}", str(number))
        new = laptop.root / ".a.swp"
        new.write_text("saved")
        new.rename(laptop.root / "a")
        (laptop.root / "d1").rename(laptop.root / "moved")
        await flush(laptop)
        assert laptop.on_cluster() == laptop.read()


@contextlib.contextmanager
def appending(path: Path) -> Iterator[Callable[[], None]]:
    """Append to a file without a pause. Yield a function that stops this."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            with path.open("ab") as file:
                file.write(b"line\n")

    def end() -> None:
        over.set()
        program.join()

    program = threading.Thread(target=work)
    program.start()
    try:
        yield end
    finally:
        end()


async def without_events(root: str) -> AsyncGenerator[set[str] | None, None]:
    """Watch without reporting any event."""
    yield None
    await asyncio.Event().wait()


async def test_a_file_that_changed_while_it_was_read_is_polled(laptop, monkeypatch) -> None:
    """The event of the last change may arrive while the file is read."""
    monkeypatch.setattr("hai_sync.watch.events.changed_paths", without_events)
    monkeypatch.setattr(daemon_module, "STABLE_TIMEOUT_SECONDS", 0.0)
    laptop.write("big.ckpt", b"x" * 20_000_000)
    async with running(laptop) as daemon:
        await flush(laptop)
        with appending(laptop.root / "big.ckpt"):
            laptop.write("code.py", "1")
            assert list((await flush(laptop))["problems"]) == ["big.ckpt"]
            assert laptop.on_cluster()["code.py"] == b"1"
        await until(lambda: laptop.on_cluster() == laptop.read())
        await until(lambda: daemon.state.report.in_sync)


async def test_a_flush_waits_for_files_that_are_being_written(laptop) -> None:
    laptop.write("big.ckpt", b"x" * 20_000_000)
    async with running(laptop) as daemon:
        await flush(laptop)
        with appending(laptop.root / "big.ckpt") as end:
            await until(lambda: "big.ckpt" in daemon.state.report.unstable_files)
            answer = asyncio.create_task(flush(laptop))
            await asyncio.sleep(2 * daemon_module.UNSTABLE_POLL_SECONDS)
            assert not answer.done()
            end()
        assert (await answer)["problems"] == {}
        assert laptop.on_cluster() == laptop.read()


async def test_a_flush_ends_although_a_file_grows_forever(laptop, monkeypatch) -> None:
    monkeypatch.setattr(daemon_module, "STABLE_TIMEOUT_SECONDS", 0.5)
    laptop.write("big.ckpt", b"x" * 20_000_000)
    async with running(laptop) as daemon:
        await flush(laptop)
        with appending(laptop.root / "big.ckpt"):
            await until(lambda: "big.ckpt" in daemon.state.report.unstable_files)
            assert list((await flush(laptop))["problems"]) == ["big.ckpt"]


async def test_a_push_through_a_daemon_reports_unsynced_paths(laptop, capsys) -> None:
    for number in range(30):
        laptop.write(str(number))
    async with running(laptop):
        await flush(laptop)
        for number in range(25):
            (laptop.root / str(number)).unlink()
        answer = await flush(laptop)
    assert answer["refused"] == "many removals"
    assert print_reply(answer, "push", as_json=False) == 1
    output = capsys.readouterr().err
    assert "not synced: 25 removals, of more than half of all files" in output
    assert "`haiworkspace sync --many-removals`" in output


async def test_suspicious_removals_do_not_block_other_changes(laptop) -> None:
    for number in range(30):
        laptop.write(f"d/{number}")
    async with running(laptop):
        await flush(laptop)
        shutil.rmtree(laptop.root / "d")
        laptop.write("new", "1")
        answer = await flush(laptop)
        assert (answer["refused"], len(answer["withheld"])) == ("many removals", 30)
        assert laptop.on_cluster()["new"] == b"1"
        laptop.write("new", "2")
        assert (await flush(laptop))["refused"] == "many removals"
        assert (len(laptop.on_cluster()), laptop.on_cluster()["new"]) == (31, b"2")


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        pytest.param(Unreachable("it is away"), "it is away", 5, id="no server"),
        pytest.param(NotFound("there is no workspace 'w'"), "no workspace", 3, id="no workspace"),
        pytest.param(Unauthenticated("the token has expired"), "expired", 4, id="a token"),
        pytest.param(OSError(28, "No space left on device", "f"), "f: No space", 1, id="a disk"),
    ],
)
async def test_a_failure_of_the_daemon_is_reported_like_one_of_the_command(
    laptop, error, message, code, monkeypatch, capsys
) -> None:
    async def fails(*args: object) -> None:
        raise error

    async with running(laptop):
        monkeypatch.setattr(Session, "sync", fails)
        laptop.write("a")
        answer = await flush(laptop)
    for verb in ("push", "watch"):
        assert print_reply(answer, verb, as_json=False) == code
        assert message in capsys.readouterr().err
    assert print_reply(answer, "push", as_json=True) == code
    output = json.loads(capsys.readouterr().err)
    assert (output["event"], output["error"]["exit_code"]) == ("error", code)
    assert failures.print_error(error, ["push", "--json"]) == code
    assert output["error"].keys() == json.loads(capsys.readouterr().err)["error"].keys()


async def test_a_conflict_does_not_block_other_paths(laptops) -> None:
    one, two = await laptops("one"), await laptops("two")
    one.write("a", "one")
    await one.sync()
    two.write("a", "two")
    async with running(two) as daemon:
        two.write("b", "other")
        answer = await flush(two)
        assert answer["conflicts"] == ["a"]
        assert two.on_cluster() == {"a": b"one", "b": b"other"}
        assert two.read()["a"] == b"two"
        assert daemon.state.error == ""


async def test_a_daemon_polls_without_events(laptop, monkeypatch) -> None:
    monkeypatch.setattr("hai_sync.watch.events.network_type", lambda root: "a network file system")
    monkeypatch.setattr("hai_sync.watch.events.POLL_SECONDS", 0.02)
    async with running(laptop) as daemon:
        laptop.write("a", "1")
        await until(lambda: laptop.on_cluster() == {"a": b"1"})
        assert daemon.events.why_polling


def reach_the_limit(monkeypatch) -> None:
    def add(watching: Inotify, top: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Inotify, "add", add)
    monkeypatch.setattr("hai_sync.watch.events.POLL_SECONDS", 0.02)


async def test_a_daemon_polls_at_the_limit_of_inotify(laptop, monkeypatch) -> None:
    reach_the_limit(monkeypatch)
    async with running(laptop) as daemon:
        laptop.write("a", "1")
        await until(lambda: laptop.on_cluster() == {"a": b"1"})
        assert "max_user_watches" in daemon.events.why_polling


async def test_a_daemon_polls_when_the_limit_is_reached_later(laptop, monkeypatch) -> None:
    async with running(laptop) as daemon:
        await flush(laptop)
        reach_the_limit(monkeypatch)
        laptop.write("d/a", "1")
        await until(lambda: bool(daemon.events.why_polling))
        assert "max_user_watches" in daemon.events.why_polling
        laptop.write("d/a", "2")
        await until(lambda: laptop.on_cluster() == {"d/a": b"2"})


async def test_removed_directories_do_not_count_as_the_limit(laptop) -> None:
    async with running(laptop) as daemon:
        for number in range(30):
            laptop.write(f"d{number}/f")
        laptop.write("stays")
        await flush(laptop)
        for number in range(15):
            shutil.rmtree(laptop.root / f"d{number}")
        await flush(laptop)
        assert laptop.on_cluster() == laptop.read()
        assert daemon.events.why_polling == ""


@pytest.mark.parametrize("absolute", [True, False])
async def test_events_have_the_real_paths_of_files(laptop, absolute: bool) -> None:
    laptop.write("real/a", "0")
    for link in ("before", "zlink"):
        (laptop.root / link).symlink_to(laptop.root / "real" if absolute else "real")
    async with running(laptop):
        for text in ("1", "2"):
            laptop.write("real/a", text)
            assert "error" not in await flush(laptop)
            assert laptop.on_cluster()["real/a"] == text.encode()
        for link in ("before", "zlink"):
            (laptop.root / link).unlink()
            await flush(laptop)
        laptop.write("real/a", "3")
        await flush(laptop)
        assert laptop.on_cluster()["real/a"] == b"3"


async def test_targets_of_outward_links_are_not_watched(laptop, tmp_path) -> None:
    (tmp_path / "data/inner").mkdir(parents=True)
    (laptop.root / "data").symlink_to(tmp_path / "data")
    async with running(laptop) as daemon:
        await flush(laptop)
        (tmp_path / "data/inner/a").write_text("1")
        await flush(laptop)
        assert daemon.state.syncs == 1


async def test_events_in_moved_directories_have_the_new_paths(laptop) -> None:
    laptop.write("a/b/c", "1")
    async with running(laptop):
        (laptop.root / "a").rename(laptop.root / "moved")
        await flush(laptop)
        laptop.write("moved/b/c", "2")
        await flush(laptop)
        assert laptop.on_cluster() == {"moved/b/c": b"2"}


async def test_lost_events_cause_a_complete_scan(laptop) -> None:
    async with running(laptop) as daemon:
        await flush(laptop)
        for name in ("b", "c") * MOST_EVENTS:  # the event loop is blocked meanwhile
            (laptop.root / name).touch()
        laptop.write("new/a", "1")
        for text in ("2", "3"):
            await flush(laptop)
            assert laptop.on_cluster() == laptop.read()
            laptop.write("new/a", text)
        assert daemon.events.why_polling == ""


async def test_a_daemon_continues_after_the_disk_of_the_index_was_full(laptop, monkeypatch) -> None:
    monkeypatch.setattr(daemon_module, "delays", lambda: iter([0.01] * 999))
    async with running(laptop) as daemon:
        real, errors = laptop.session.sync, iter([sqlite3.OperationalError("disk is full")] * 2)

        async def sync(session, sync_options):
            for error in errors:
                raise error
            return await real(sync_options)

        monkeypatch.setattr(type(laptop.session), "sync", sync)
        laptop.write("a", "1")
        await until(lambda: laptop.on_cluster() == {"a": b"1"})
        await until(lambda: not daemon.state.error)


async def test_a_daemon_continues_when_the_server_is_back(laptop, monkeypatch) -> None:
    monkeypatch.setattr(daemon_module, "delays", lambda: iter([0.01] * 999))
    async with running(laptop) as daemon:
        connection, server_lost = laptop.session.remote.connection, True
        real = connection.unary

        async def unary(*args, **more):
            if server_lost:
                raise Unreachable("no server answers")
            return await real(*args, **more)

        connection.unary = unary
        laptop.write("a", "1")
        await until(lambda: daemon.state.phase == "waiting")
        assert "no server" in daemon.state.error
        server_lost = False
        await until(lambda: laptop.on_cluster() == {"a": b"1"})


async def test_a_cancelled_part_ends_the_daemon_with_an_error(laptop, monkeypatch) -> None:
    """It used to continue without that part, or end without a message."""

    async def cancelled(self: Daemon) -> None:
        part = asyncio.ensure_future(asyncio.Event().wait())
        part.cancel()
        await part

    monkeypatch.setattr(Daemon, "_watch_remote", cancelled)
    async with asyncio.timeout(20):
        with pytest.raises(CancelledWithin, match="something that it waited for"):
            await Daemon(laptop.session, SyncOptions(), lambda line: None).run()
    assert not laptop.session.workspace.socket.exists()


async def test_a_daemon_without_its_socket_stops(laptop, monkeypatch) -> None:
    monkeypatch.setattr(daemon_module, "RESCAN_SECONDS", 0.01)
    log_lines, ours = list[str](), laptop.session.workspace.socket
    work = asyncio.create_task(Daemon(laptop.session, SyncOptions(), log_lines.append).run())
    await until(ours.exists)
    ours.unlink()
    ours.touch()  # the socket of another daemon
    async with asyncio.timeout(20):
        await work
    assert ours.exists()
    assert "the socket was removed" in log_lines[-1]


@pytest.mark.parametrize("argv", [("status",), ("watch", "status"), ("push",)])
async def test_a_daemon_that_does_not_answer_is_reported(laptop, argv, monkeypatch, capsys) -> None:
    monkeypatch.chdir(laptop.root)
    profile = laptop.session.remote.connection.profile
    monkeypatch.setenv("HAI_SERVER", profile.server)
    monkeypatch.setenv("HAI_TOKEN", profile.token)
    patience = socket.socket.settimeout
    monkeypatch.setattr(socket.socket, "settimeout", lambda self, _: patience(self, 0.05))
    with (
        closing(socket.socket(socket.AF_UNIX)) as silent,
        ShortSocketPath(laptop.session.workspace.private_dir) as at,
    ):
        silent.bind(at)
        silent.listen()
        assert await asyncio.to_thread(main, argv) == 124
    assert "the daemon of this workspace does not answer" in capsys.readouterr().err


async def test_a_removed_root_ends_the_daemon_and_removes_nothing(laptop, tmp_path) -> None:
    laptop.write("a", "1")
    async with running(laptop):
        await flush(laptop)
        laptop.root.rename(tmp_path / "elsewhere")
        await asyncio.sleep(0.1)
        assert laptop.on_cluster() == {"a": b"1"}


async def test_a_daemon_notices_a_sync_by_another_process(laptop) -> None:
    async with running(laptop, Mode.PUSH):
        laptop.write("a", "1")
        await flush(laptop)
        (laptop.cluster / "b").write_text("task")
        from hai_sync.cli.session_factory import open_session

        other = open_session(laptop.session.workspace, laptop.session.remote.connection)
        await other.sync(SyncOptions(Rules(Mode.PULL)))
        other.index.close()
        laptop.write("b", "mine")
        await flush(laptop)
        assert laptop.on_cluster() == {"a": b"1", "b": b"mine"}


@pytest.mark.parametrize("verb", ["status", "nonsense"])
async def test_status_shows_the_state_of_the_daemon(verb: str, laptop) -> None:
    async with running(laptop):
        answer = await asyncio.to_thread(
            query_daemon, laptop.session.workspace.private_dir, {"verb": verb}
        )
        assert answer["phase"] in ("watching", "syncing")
