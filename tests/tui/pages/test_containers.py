"""Pages of dev containers and services: create, suspend and end a container; stop, start and read a service; open a
shell.
"""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from hai.client.profile import Profile
from hai.v1.container_pb2 import SERVICE_STATE_STOPPED
from hai.v1.task_pb2 import TASK_OUTCOME_STOPPED
from hai.v1.task_spec_pb2 import ServiceSpec
from hai_tui.demo_cluster.cluster import demo


async def test_a_container_is_made_put_away_and_ended_for_good(drive) -> None:
    client = await demo()
    profile = Profile("lab", "example:1", "t")
    async with drive(
        profile, size=(140, 30), start="containers", connect=lambda profile: client
    ) as tui:
        await tui.shows("notebook-erin", "1 in all")
        await tui.press("a", *"lab-2", "tab", *"tiny", "ctrl+s")
        await tui.shows("'tiny' must be one of")
        await tui.press(*["backspace"] * 4, *"spot", "ctrl+s")
        await tui.shows("lab-2", "spot", "2 in all")
        (made,) = (await client.tasks.list(filter="name:lab-2")).tasks
        client.start(made.id, ["gpu-00"])
        await tui.press("/", *"lab-2", "enter", "o")
        await tui.shows("Open this link in a browser", f"http://t{made.id}.localhost:8080/")
        await tui.press("c")
        assert tui.app.clipboard == f"http://t{made.id}.localhost:8080/.hai/login?key=once"
        await tui.press("escape", "x", "y")
        await tui.shows("HELD")
        await tui.press("ctrl+d", *"wrong", "enter")
        await tui.shows(f"delete with its files: {made.id} lab-2?", "type lab-2")
        await tui.press(*["backspace"] * 5, *"lab-2", "enter")
        await tui.shows("0 of 1 with 'lab-2'")
        assert (await client.tasks.get(made.id)).outcome == TASK_OUTCOME_STOPPED


async def test_a_service_is_stopped_started_and_read(
    server, drive, client, program, tmp_path: Path
) -> None:
    (tmp_path / "beat.sh").write_text("echo it beats\nexec sleep 60\n")
    beat = ServiceSpec(name="beat", type="local", startup_script=f"sh {tmp_path / 'beat.sh'}")
    spec = program("train", "sleep", "60")
    spec.services.append(beat)
    task = await client.tasks.create(spec)
    async with drive(server.profile, size=(120, 30), start=f"task {task.id}") as tui:
        await tui.shows("RUNNING")
        await tui.press("S")
        await tui.shows("› services 1", "beat", "READY")
        await tui.press("x", "y")
        await tui.shows("STOPPED")
        (service,) = (await client.containers.get(task.id)).services
        assert service.state == SERVICE_STATE_STOPPED
        await tui.press("s")
        await tui.shows("READY")
        await tui.press("enter")
        await tui.shows("[beat] it beats", "only")


async def test_a_shell_has_the_screen_and_gives_it_back(
    server, drive, submit, client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr("hai_tui.screens.task.task_page.subprocess.run", run)
    task = await submit("train")
    async with drive(server.profile, size=(120, 30), start=f"task {task.id} ranks") as tui:
        monkeypatch.setattr(tui.app, "suspend", nullcontext)
        await tui.shows("RUNNING")
        await tui.press("s")
        await tui.shows("the shell has ended with 3")
        assert ran[0][-3:] == ["1", "-r", "0"]
        await client.tasks.stop(task.id)
        await tui.shows("STOPPED")
        await tui.press("s")
        await tui.shows("the task does not run")
    assert len(ran) == 1
