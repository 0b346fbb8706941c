"""Errors end the server with a message, and some events must not end it."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import pytest
import structlog

from hai.host.disk_reserve import DiskSpace
from hai_backend import main
from hai_backend.testing.kube.cluster import write_kubeconfig
from tests.small_disk import fill, small_disk


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    before, handlers = structlog.get_config(), logging.getLogger().handlers[:]
    yield
    structlog.configure(**before)
    logging.getLogger().handlers[:] = handlers


def test_a_full_disk_loses_lines_of_the_log_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", FullDisk())
    main._log_as_json()
    structlog.get_logger().warning("an agent was cut off")


@pytest.mark.parametrize(
    ("library", "error", "traced"),
    [
        pytest.param("asyncio", ConnectionError("unexpected connection_lost() call"), False, id="lost"),
        pytest.param("sqlalchemy.pool.impl.Queue", RuntimeError("closed"), False, id="of the pool"),
        pytest.param("grpc._cython.cygrpc", KeyError("a mistake"), True, id="a mistake"),
    ],
)  # fmt: skip
def test_what_libraries_say_is_one_line_of_json(
    library: str, error: Exception, traced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    main._log_as_json()
    logging.getLogger(library).error("Something was never retrieved\n<Future>", exc_info=error)
    (line,) = map(json.loads, said.getvalue().splitlines())
    assert (line["event"], line["level"]) == ("Something was never retrieved", "error")
    assert (line["library"], line["why"]) == (library, repr(error))
    assert ("exception" in line) is traced


def test_no_line_of_the_log_has_the_credentials_of_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    main._log_as_json()
    url = "postgresql://hai:hunter2@db/hai"
    structlog.get_logger().error("no database", address=url, tried=[url], trace=f"…\n{url}: down")
    logging.getLogger("a.library").error("cannot reach %s", url, exc_info=OSError(url))
    assert "hunter2" not in said.getvalue()
    assert said.getvalue().count("postgresql://****@db/hai") == 5


def test_a_home_that_cannot_be_made_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main.main(["--home", str(tmp_path / "file" / "home")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("hai-server: cannot work in ")
    assert "Not a directory" in line


def pods(home: Path, kubeconfig: Path) -> None:
    """Write the settings of a server that runs tasks as pods."""
    home.mkdir()
    table = f'[kubernetes]\nagent_path = "/opt/hai"\nkubeconfig = "{kubeconfig}"\n'
    (home / "hai.toml").write_text(table)


async def test_a_server_that_waits_for_its_cluster_can_be_stopped(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as silent:
        url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        home = tmp_path / "home"
        pods(home, write_kubeconfig(tmp_path / "kubeconfig", url))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hai_backend.main", "--home", str(home))
        )
        try:
            await asked.wait()
            process.terminate()
            async with asyncio.timeout(60):
                assert await process.wait() == 0
        finally:
            with suppress(ProcessLookupError):
                process.kill()


def test_a_kubeconfig_that_is_not_there_is_told_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    pods(home, tmp_path / "nowhere")
    assert main.main(["--home", str(home)]) == 2
    said = capsys.readouterr().err
    assert f"kubernetes.kubeconfig: {tmp_path / 'nowhere'} cannot be used: " in said
    assert "Traceback" not in said


def test_it_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"hai-server, version {version('hai-platform')}\n"


@pytest.mark.parametrize(
    ("room", "code", "told"),
    [
        pytest.param(DiskSpace(1000 << 20, 500 << 20, 50 << 20), 0, "the disks have room", id="room"),
        pytest.param(DiskSpace(1000 << 20, 100 << 20, 50 << 20), 1, "50 of 1000 MB are left", id="little"),
        pytest.param(DiskSpace(1000 << 20, 10 << 20, 50 << 20), 1, "no room is left", id="the reserve"),
        pytest.param(DiskSpace(0, 0, 0), 0, "the disks have room", id="a disk that says nothing"),
    ],
)  # fmt: skip
def test_a_check_warns_before_a_disk_is_full(
    room: DiskSpace, code: int, told: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(main, "disk_space", lambda path: room)
    home = tmp_path / "not" / "made"
    assert main.main(["--home", str(home), "--check"]) == code
    said = capsys.readouterr()
    assert told in said.out + said.err
    assert not code or f"home {home}: " in said.err
    assert not home.exists()


def test_a_check_tells_of_wrong_settings(tmp_path: Path, capsys) -> None:
    (tmp_path / "hai.toml").write_text("nodes = 'many'\n")
    assert main.main(["--home", str(tmp_path), "--check"]) == 2
    assert "nodes" in capsys.readouterr().err


def test_a_check_looks_at_every_disk(tmp_path: Path, capsys) -> None:
    """The shared directory is on a separate disk."""
    with small_disk(tmp_path / "disk", 16) as disk:
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "hai.toml").write_text(f"shared = '{disk}'\n")
        arguments = ["--home", str(tmp_path / "home"), "--check"]
        assert main.main(arguments) == 0
        filling = fill(disk, but=1 << 20)
        assert main.main(arguments) == 1
        assert f"shared {disk}: " in capsys.readouterr().err
        filling.unlink()
        assert main.main(arguments) == 0
