"""Services beside a program, shells, the notice of a suspend, and the detection of activity in JupyterLab."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hai.v1 import agent_service_pb2 as pb
from hai.v1 import container_pb2 as states
from hai_backend.agent.program.suspend import MARGIN_SECONDS, Notice
from hai_backend.agent.server.tunnel_endpoint import CannotServe, Unreachable
from hai_backend.agent.services import commands, jupyter
from hai_backend.launch import rank_dirs
from hai_backend.launch.base import RankKey
from tests.ports import free_port


def listener(port: int) -> str:
    """Return a command that listens on a port."""
    return f"{sys.executable} -m http.server {port} --bind 127.0.0.1"


async def until(rank: Any, name: str, state: int, starts: int = 1) -> Any:
    """Return the first report in which a service has this state and at least so many starts."""
    count = 1
    while True:
        told = await rank.until("services", count)
        for service in told.services:
            if (service.name, service.state) == (name, state) and service.starts >= starts:
                return service
        count += 1


async def test_services_run_beside_the_program_and_end_with_it(
    agents: Any, server: Any, python: Any, marked: Any
) -> None:
    port = free_port()
    spec = pb.AgentServiceSpec(
        name="web", type="http", port=port, startup_script=listener(port), base_url="/"
    )
    code = 'import os, time; print(os.environ["HAI_SERVICE_NAME"], flush=True); time.sleep(99)'
    script = f"{sys.executable} -c '{code}'"
    local = pb.AgentServiceSpec(name="helper", type="local", startup_script=script)
    rank, process = await agents.start(
        python("import time; time.sleep(99)"), services=[spec, local]
    )
    ready = await until(rank, "web", states.SERVICE_STATE_READY)
    assert (ready.port, ready.starts) == (port, 1)
    await until(rank, "helper", states.SERVICE_STATE_READY)
    rank.tell(control_service=pb.ServiceControlled(name="web", action=states.SERVICE_ACTION_STOP))
    await until(rank, "web", states.SERVICE_STATE_STOPPED)
    rank.tell(
        control_service=pb.ServiceControlled(name="web", action=states.SERVICE_ACTION_RESTART)
    )
    await until(rank, "web", states.SERVICE_STATE_READY, starts=2)
    rank.tell(end=pb.EndProgram(grace_seconds=1.0))
    await process.wait()
    assert marked() == []
    assert "[helper] helper" in server.lines()


@pytest.mark.parametrize(
    ("script", "state", "message"),
    [
        pytest.param(
            "no-such-program", states.SERVICE_STATE_STARTING, "exit code 127", id="missing"
        ),
        pytest.param("false", states.SERVICE_STATE_STARTING, "exit code 1", id="fails"),
        pytest.param("true", states.SERVICE_STATE_STOPPED, "has ended", id="ends well"),
    ],
)
async def test_a_service_that_ends_says_how(
    agents: Any, python: Any, script: str, state: int, message: str
) -> None:
    spec = pb.AgentServiceSpec(name="x", type="tcp", port=1, startup_script=script)
    rank, _ = await agents.start(python("import time; time.sleep(99)"), services=[spec])
    count = 1
    while message not in (told := await rank.until("services", count)).services[0].message:
        count += 1
    assert told.services[0].state == state


async def test_a_container_acknowledges_warns_and_yields(
    agents: Any, python: Any, home: Path
) -> None:
    rank, _ = await agents.start(python("import time; time.sleep(99)"), container=True)
    await rank.until("started")
    asked = pb.SuspendRequested(save_within_seconds=MARGIN_SECONDS + 0.3, reason="for task 9")
    rank.tell(suspend=asked)
    await rank.until("suspend_acknowledged")
    await rank.until("yielded")
    notice = json.loads((home / "run" / "7-1-0" / "notice.json").read_text())
    assert (notice["kind"], notice["reason"]) == ("reclaim", "for task 9")
    assert notice["ends_at"] - notice["given_at"] == pytest.approx(0.3)


async def test_a_notice_lasts_unless_it_was_wanted_and_all_is_saved(tmp_path: Path) -> None:
    asked = pb.SuspendRequested(save_within_seconds=60, reason="r", wanted=True)
    notice = Notice(tmp_path / "notice.json")
    giving = asyncio.ensure_future(notice.show(asked))
    await asyncio.sleep(0)
    assert not giving.done()
    assert json.loads((tmp_path / "notice.json").read_text())["kind"] == "stop"
    notice.saved()
    await asyncio.wait_for(giving, 1)
    asked.wanted = False
    insisting = asyncio.ensure_future(notice.show(asked))
    await asyncio.sleep(0.01)
    assert not insisting.done()
    insisting.cancel()


KERNEL = {"execution_state": "idle", "last_activity": "2026-11-21T12:00:00.000000Z"}
NOON = 1_795_262_400.0


@pytest.mark.parametrize(
    ("kernels", "terminals", "expected"),
    [
        pytest.param([], [], None, id="nothing there"),
        pytest.param([KERNEL], [], 60.0, id="idle kernel"),
        pytest.param([KERNEL, {**KERNEL, "execution_state": "busy"}], [], 0.0, id="busy kernel"),
        pytest.param([{**KERNEL, "execution_state": "starting"}], [], 0.0, id="starting kernel"),
        pytest.param(
            [KERNEL], [{"last_activity": "2026-11-21T12:00:30Z"}], 30.0, id="a newer terminal"
        ),
    ],
)
def test_how_long_nobody_has_worked(kernels: Any, terminals: Any, expected: float | None) -> None:
    assert jupyter.compute_idle_seconds(kernels, terminals, NOON + 60) == expected


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("nothing", id="no json"),
        pytest.param('[{"execution_state": "idle"}]', id="no time"),
        pytest.param('[{"last_activity": null}]', id="null"),
        pytest.param("7", id="no list"),
        pytest.param('["kernel"]', id="no object"),
        pytest.param("[" * 60_000, id="deep"),
    ],
)
async def test_odd_answers_of_a_lab_are_none_and_no_fault_of_the_agent(
    body: str, tmp_path: Path
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.0 200 OK\r\n\r\n{body}".encode())
        writer.close()

    lab = jupyter.Server(tmp_path, tmp_path, "/")
    listening = await asyncio.start_unix_server(answer, lab.socket)
    assert await lab.read_idle_seconds() is None
    assert isinstance(await lab.is_answering(), bool)
    listening.close()


async def test_a_notice_that_cannot_be_written_leaves_the_time_to_save(tmp_path: Path) -> None:
    """If the disk is full, an error must not end the agent and the program that has to save."""
    notice = Notice(tmp_path / "gone" / "notice.json")
    asked = pb.SuspendRequested(save_within_seconds=MARGIN_SECONDS + 0.01)
    await asyncio.wait_for(notice.show(asked), 5)


def test_lab_is_started_without_any_secret(tmp_path: Path) -> None:
    server = jupyter.Server(tmp_path, tmp_path, "/t/5/main/")
    argv = server.argv({"SHELL": "/bin/sh"})
    assert "--ServerApp.terminado_settings={'shell_command': ['/bin/sh']}" in argv
    assert "--ServerApp.base_url=/t/5/main/" in argv
    assert "--IdentityProvider.token=" in argv
    assert f"--ServerApp.sock={server.socket}" in argv
    assert "JUPYTER_TOKEN" not in server.variables({"JUPYTER_TOKEN": "secret"})


def test_the_socket_of_a_lab_in_a_deep_home_is_elsewhere_and_goes_with_the_rank(
    tmp_path: Path,
) -> None:
    directory = rank_dirs.path_of(tmp_path / ("x" * 100), RankKey(7, 1, 0))
    directory.mkdir(parents=True)
    first = jupyter.Server(directory, tmp_path, "/").socket
    again = jupyter.Server(directory, tmp_path, "/").socket
    assert (len(str(again)) < 108, again.parent.is_dir()) == (True, True)
    again.touch()
    rank_dirs.clear(directory.parents[1], [directory])
    gone = (first.parent, again.parent, directory)
    assert not [path for path in gone if path.exists()]


async def test_what_cannot_be_served_says_what_to_do(tmp_path: Path) -> None:
    spec = pb.AgentServiceSpec(name="jupyter", type="http", base_url="/")
    command = commands.make_command(spec, tmp_path, tmp_path, {"PATH": str(tmp_path)})
    with pytest.raises(CannotServe, match="pip install"):
        command.prepare()
    assert not await command.is_answering()
    with pytest.raises(Unreachable):
        await command.connect()


def test_the_profile_is_what_clients_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hai.client.profile import load
    from hai_backend.agent.rank_dir import RankDir

    directory = RankDir(tmp_path / "run" / "7-1-0")
    directory.path.mkdir(parents=True)
    for name in ("HAI_SERVER", "HAI_TOKEN", "HAI_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HAI_CONFIG", str(directory.profile))
    for ca in ("", "/etc/ca.pem"):
        facts = {"address": "a:1,b:2", "ca": ca}
        (tmp_path / "server.json").write_text(json.dumps(facts))
        directory.write_profile('hai_"x')
        profile = load()
        assert (profile.addresses, profile.token) == (("a:1", "b:2"), 'hai_"x')
        assert (profile.ca, profile.insecure) == (ca, not ca)
