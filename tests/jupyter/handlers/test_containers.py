"""The handlers for dev containers and for workspaces of folders, with a real platform."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from hai.client.client import Client
from hai.client.errors import Conflict, Denied, Invalid
from hai.client.fake.server import FakeClient
from hai.client.profile import Profile
from hai.v1.task_pb2 import Task
from hai.v1.task_spec_pb2 import ProgramSpec, TaskSpec
from hai.v1.workspace_service_pb2 import FetchFilesResponse
from hai_jupyter.contents_path import ContentsPaths
from hai_jupyter.errors import body
from hai_jupyter.handlers.containers import container_options
from hai_jupyter.notebooks import executed, nbformat_files
from hai_jupyter.syncing import last_event, run_haiworkspace, truncate, workspace_of
from tests.jupyter.conftest import JupyterSetup, Page, sync_command

pytestmark = pytest.mark.xdist_group("jupyter")


async def test_a_container_is_created_put_away_brought_back_and_deleted(
    page: Page, client: Client
) -> None:
    made = await page.post("containers", {"name": "lab", "idle_timeout": 7200})
    assert (made.code, made.data.get("type")) == (200, "jupyter"), made.data
    id = made.data["id"]
    shown = await page.get(f"containers/{id}")
    assert [service["name"] for service in shown.data["services"]] == ["jupyter"]
    assert (await client.tasks.get(id)).spec.options.idle_timeout == 7200
    assert (await page.post(f"tasks/{id}/suspend", {"hold": True})).code == 200
    await client.tasks.wait(id, until="suspended", timeout=60)
    opened = await page.post(f"containers/{id}/open", {"service": ""})
    assert "/.hai/login?key=" in opened.data["link"]
    assert (await page.post(f"containers/{id}/services/jupyter/restart", {})).code == 409
    assert (await page.delete(f"containers/{id}")).code == 200
    assert (await page.get(f"tasks/{id}")).data["row"]["state"] == "FINISHED"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("get", "containers/999", id="get"),
        pytest.param("post", "containers/999/open", id="open"),
        pytest.param("post", "containers/999/renew", id="renew"),
        pytest.param("post", "containers/999/services/jupyter/stop", id="service"),
        pytest.param("delete", "containers/999", id="delete"),
        pytest.param("post", "containers/1/services/../stop", id="odd name"),
    ],
)
async def test_what_is_not_there_is_not_found(page: Page, method: str, path: str) -> None:
    ask = getattr(page, method)
    assert (await (ask(path, {}) if method == "post" else ask(path))).code == 404


def test_a_wish_with_mistakes_names_all() -> None:
    with pytest.raises(Invalid) as raised:
        container_options({"gpu": "1", "kind": "royal", "token": "x", "memory": True})
    fields = {violation["field"] for violation in body(raised.value)["violations"]}
    assert fields == {"gpu", "kind", "token", "memory"}
    assert container_options({"name": "n", "gpu": 1}).gpu == 1


async def test_the_folder_of_a_workspace_is_pushed_pulled_and_a_conflict_shown(
    page: Page, setup: JupyterSetup, client: Client
) -> None:
    folder = setup.root / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("one\n")
    await asyncio.to_thread(sync_command, setup, folder, "init", "project")
    there = Path((await client.workspaces.get("project")).path) / "src" / "a.py"

    async def standing() -> tuple[int, int, list[str]]:
        found = (await page.get("workspace?path=project/src")).data
        assert found["name"] == "project"
        return found["uploaded"], found["downloaded"], found["conflicts"]

    assert (await standing())[0] > 0
    pushed = await page.post("workspace/push", {"path": "project"})
    assert (pushed.code, pushed.data["refused"]) == (200, "")
    assert there.read_text() == "one\n"
    there.write_text("theirs\n")
    assert await standing() == (0, 1, [])
    (folder / "src" / "a.py").write_text("ours\n")
    assert await standing() == (0, 0, ["src/a.py"])
    refused = (await page.post("workspace/pull", {"path": "project"})).data
    assert (refused["refused"], refused["conflicts"]) == ("conflicts", ["src/a.py"])
    assert (folder / "src" / "a.py").read_text() == "ours\n"


async def test_a_submission_from_a_workspace_runs_exactly_what_is_pushed(
    page: Page, setup: JupyterSetup, client: Client
) -> None:
    folder = setup.root / "paper" / "src"
    folder.mkdir(parents=True)
    (folder / "run.py").write_text("print(open('x').read())\n")
    (folder / "x").write_text("as submitted")
    await asyncio.to_thread(sync_command, setup, folder.parent, "init", "paper")
    draft = (await page.get("draft?path=paper/src/run.py")).data
    assert draft["workspace"] == "paper"
    body = {"path": "paper/src/run.py", "draft": draft["draft"]}
    made = await page.post("submit", {**body, "push": True})
    (folder / "x").write_text("changed afterwards")
    id = made.data["id"]
    await client.tasks.wait(id, timeout=60)
    task = await client.tasks.get(id)
    assert task.spec.spec.workspace == "haiworkspace://paper@1/src"
    assert "as submitted" in (await page.get(f"tasks/{id}/log.txt")).text
    there = Path((await client.workspaces.get("paper")).path) / "src" / "x"
    there.write_text("theirs")
    (folder / "x").write_text("ours")
    again = {**body, "draft": (await page.get("draft?path=paper/src/run.py")).data["draft"]}
    refused = await page.post("submit", {**again, "push": True})
    assert (refused.code, "src/x" in refused.data["message"]) == (409, True)
    to_json_value = await page.post("submit", again)
    assert (await client.tasks.get(to_json_value.data["id"])).spec.spec.workspace == str(folder)


async def test_an_executed_notebook_is_brought_from_the_directory_of_its_task(
    page: Page, setup: JupyterSetup, client: Client
) -> None:
    folder = setup.root / "thesis" / "sub"
    folder.mkdir(parents=True)
    nbformat_files.write(
        nbformat_files.new_notebook([nbformat_files.code_cell("print(6 * 7)")], {}),
        folder / "a.ipynb",
    )
    await asyncio.to_thread(sync_command, setup, folder.parent, "init", "thesis")
    draft = (await page.get("draft?path=thesis/sub/a.ipynb")).data["draft"]
    body = {"path": "thesis/sub/a.ipynb", "draft": draft, "push": True}
    id = (await page.post("submit", body)).data["id"]
    await client.tasks.wait(id, timeout=60)
    shown = (await page.get(f"tasks/{id}")).data
    assert (shown["notebook"], shown["fetchable"]) == ("", True)
    brought = (await page.post(f"tasks/{id}/executed", {})).data["path"]
    assert brought.startswith("thesis/sub/hai_jobs/a-")
    assert brought.endswith(f".{id}.ipynb")
    done = nbformat_files.read(setup.root / brought)
    assert done.cells[0].outputs[0].text == "42\n"


async def test_no_link_leads_an_executed_notebook_elsewhere(tmp_path: Path) -> None:
    """The target path comes from the name of a task, and a link may lie there."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root, outside):
        folder.mkdir()
    (root / "a.ipynb").touch()
    (root / "hai_jobs").symlink_to(outside)
    client = FakeClient()
    client.workspaces.fetch = lambda *_, **__: _answers(b"{}")  # type: ignore[method-assign]
    given = ["-m", "hai_jupyter.run_notebook", "a.ipynb", "../../evil.ipynb"]
    program = ProgramSpec(workspace="haiworkspace://w@1/sub", parameters=given)
    task = Task(id=7, name="a.ipynb", spec=TaskSpec(spec=program))
    with pytest.raises(Denied, match="outside"):
        await executed.download(client, task, ContentsPaths(root))
    (root / "hai_jobs").unlink()
    (root / "hai_jobs").mkdir()
    (root / "hai_jobs" / "evil.ipynb").symlink_to(outside / "evil.ipynb")
    assert await executed.download(client, task, ContentsPaths(root)) == "hai_jobs/evil.ipynb"
    assert list(outside.iterdir()) == []


async def _answers(data: bytes) -> AsyncGenerator[FetchFilesResponse, None]:
    yield FetchFilesResponse(data=data)


async def test_a_push_goes_to_the_platform_of_this_server_not_to_the_current_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text('current = "x"\n[profiles.x]\nserver = "127.0.0.1:1"\n')
    monkeypatch.setenv("HAI_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    await asyncio.to_thread(_workspace_at, tmp_path)
    with pytest.raises(Conflict, match=r"127\.0\.0\.1:2"):
        await run_haiworkspace(tmp_path, "push", Profile("y", "127.0.0.1:2", "secret"))


def _workspace_at(folder: Path) -> None:
    (folder / ".hfai").mkdir()
    (folder / ".hfai" / "workspace.yml").write_text("name: w\nid: 0123456789abcdef\n")


async def test_a_folder_of_no_workspace(page: Page, setup: JupyterSetup) -> None:
    (setup.root / "plain").mkdir()
    assert (await page.get("workspace?path=plain")).data == {}
    assert (await page.post("workspace/push", {"path": "plain"})).code == 404
    assert (await page.post("workspace/push", {"path": "../.."})).code == 409
    assert (await page.post("workspace/remove", {"path": "plain"})).code == 404


def test_a_workspace_above_what_jupyter_shows_is_none(tmp_path: Path) -> None:
    (tmp_path / ".hfai").mkdir()
    (tmp_path / ".hfai" / "workspace.yml").touch()
    inner = tmp_path / "root" / "sub"
    assert workspace_of(inner, tmp_path / "root") is None
    assert workspace_of(inner, tmp_path) == tmp_path


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param(b'{"event": "stage"}\n{"event": "done", "files": 1}\n', 1, id="the last"),
        pytest.param(b'note: x\n{"event": "done", "files": 2}\nbye\n', 2, id="among words"),
        pytest.param(b'{"event": "progress"}\n[1]\n', None, id="none"),
    ],
)
def test_what_haiworkspace_says(told: bytes, expected: int | None) -> None:
    said: Any = last_event(told)
    assert (said and said["files"]) == expected


def test_long_lists_are_cut_and_counted() -> None:
    said = truncate({"conflicts": ["x"] * 500, "problems": {}, "files": 3})
    assert (len(said["conflicts"]), said["conflicts_count"], said["files"]) == (200, 500, 3)
