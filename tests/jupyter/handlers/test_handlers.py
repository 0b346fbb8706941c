"""The handlers over HTTP, in a real Jupyter server that uses a real platform."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import quote, urlsplit

import nbformat
import pytest

from hai.client.client import Client
from hai.client.tasks.diagnosis import diagnose
from hai.v1.artifact_pb2 import Artifact
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from tests.jupyter.conftest import JupyterSetup, Page

NB: Any = nbformat

pytestmark = pytest.mark.xdist_group("jupyter")  # one Jupyter server for the file
COUNT = """
import time, hai
for i in range(400):
    print("step", i, flush=True)
    time.sleep(0.05)
    if hai.receive_suspend_command():
        hai.go_suspend()
"""


def write_notebook(setup: JupyterSetup, name: str, *sources: str) -> None:
    cells = [NB.v4.new_code_cell(source) for source in sources]
    NB.write(NB.v4.new_notebook(cells=cells), setup.root / name)


async def hand_in(page: Page, path: str, **more: Any) -> Any:
    draft = (await page.get(f"draft?path={quote(path)}")).data["draft"]
    return await page.post("submit", {"path": path, "draft": draft, **more})


async def test_the_user_is_shown_without_a_token(page: Page, setup: JupyterSetup) -> None:
    answer = await page.get("me")
    assert (answer.code, answer.data["role"]) == (200, "ADMIN")
    assert setup.profile.token not in answer.text
    assert "tokens" not in answer.data


async def test_who_visits_the_container_of_somebody_else_is_named(page: Page) -> None:
    """The platform's proxy names the visitor in a header, which it never accepts from a browser."""
    me = (await page.get("me")).data
    assert me["visitor"] == ""
    assert (await page.get("me", **{"X-Hai-User": me["user"]})).data["visitor"] == ""
    assert (await page.get("me", **{"X-Hai-User": "bob"})).data["visitor"] == "bob"


@pytest.mark.parametrize("path", ["me", "state", "groups", "draft?path=x.py", "tasks/1", "memory"])
async def test_nobody_gets_in_without_jupyters_token(page: Page, path: str) -> None:
    assert (await page.get(path, Authorization="")).code == 403


async def test_a_form_of_another_site_can_not_submit(page: Page, setup: JupyterSetup) -> None:
    """Such a form sends the login cookie, but does not know the token that only pages of Jupyter can read."""
    cookie = await page.login()
    (setup.root / "xsrf.py").write_text("print(1)\n")
    body = {"path": "xsrf.py"}
    own = cookie.partition("_xsrf=")[2].partition(";")[0]
    told = {"Authorization": "", "Cookie": cookie}
    assert (await page.get("memory", **told)).code == 200
    assert (await page.post("check", body, **told)).code == 403
    assert (await page.post("check", body, **told, **{"X-XSRFToken": own})).code == 200


@pytest.mark.parametrize(
    "path",
    [
        "../config.toml",
        "/etc/passwd",
        "a/../../config.toml",
        ".hidden.py",
        "out/config.toml",
        "a%00b.py",
    ],
)
async def test_nothing_outside_of_the_root_is_read(
    page: Page, setup: JupyterSetup, path: str
) -> None:
    link = setup.root / "out"
    if not link.exists():
        link.symlink_to(setup.home)
    answer = await page.get(f"draft?path={path}")
    assert answer.code in (404, 409)
    assert "token" not in answer.text
    checked = await page.post("check", {"path": path.replace("%00", "\0")})
    assert checked.code in (404, 409)


OUTSIDE = [
    *("../secret.ipynb", "/etc/hostname", "a/../../secret.ipynb", ".hidden/a.ipynb"),
    *("out/secret.ipynb", "secret-link.ipynb", "x\0.ipynb", "%2e%2e/secret.ipynb"),
]
"""Paths of what is not in the root, and of links that lead out of it."""


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda page, path: page.get(f"draft?path={quote(path)}"), id="draft"),
        pytest.param(lambda page, path: page.get(f"workspace?path={quote(path)}"), id="workspace"),
        *(
            pytest.param(
                lambda page, path, to=to: page.post(to, {"path": path, "draft": "x"}), id=to
            )
            for to in (
                *("check", "submit", "notebook/script", "notebook/clear"),
                *("workspace/push", "workspace/pull", "workspace/sync"),
            )
        ),
    ],
)
async def test_no_handler_reaches_outside_of_the_root(
    page: Page, setup: JupyterSetup, ask: Any
) -> None:
    secret = setup.home / "secret.ipynb"
    write_notebook(setup, "../secret.ipynb", "'a secret'")
    (setup.root / ".hidden").mkdir(exist_ok=True)
    write_notebook(setup, ".hidden/a.ipynb", "'a secret'")
    for name, target in (("out", setup.home), ("secret-link.ipynb", secret)):
        if not (setup.root / name).is_symlink():
            (setup.root / name).symlink_to(target)
    before = {path: path.stat().st_mtime_ns for path in setup.home.iterdir()}
    for path in OUTSIDE:
        answer = await ask(page, path)
        assert answer.code in (400, 404, 409), (path, answer.text)
        assert "a secret" not in answer.text
    after = {path: path.stat().st_mtime_ns for path in setup.home.iterdir()}
    assert after.keys() - {setup.home / ".npm"} == before.keys() - {setup.home / ".npm"}  # Lab's
    assert after[secret] == before[secret]


async def test_all_that_is_wrong_with_a_request_is_said_at_once(page: Page) -> None:
    answer = await page.post("check", {"path": 3, "cells": [1], "parameters": []})
    assert answer.code == 400
    fields = [violation["field"] for violation in answer.data["violations"]]
    assert fields == ["path", "cells"]


async def test_what_would_be_submitted_is_shown_with_what_would_become_of_it(
    page: Page, setup: JupyterSetup
) -> None:
    (setup.root / "look.py").write_text("print(1)\n")
    answer = await page.post("check", {"path": "look.py", "form": {"resource": {"node_count": 2}}})
    assert answer.data["outcome"] == "STARTS"
    assert "entrypoint: look.py" in answer.data["yaml"]
    assert "node_count: 2" in answer.data["yaml"]


async def test_a_task_file_that_breaks_rules_is_refused_with_places(page: Page) -> None:
    answer = await page.post("check", {"yaml": "version: 2\nname: a\nspek: 1\n"})
    assert answer.code == 400
    assert any(v["line"] == 3 for v in answer.data["violations"])


async def test_two_tabs_hand_the_same_thing_in_once(
    page: Page, setup: JupyterSetup, client: Client
) -> None:
    (setup.root / "twice.py").write_text("print(1)\n")
    draft = (await page.get("draft?path=twice.py")).data["draft"]
    body = {"path": "twice.py", "draft": draft}
    first, second = await asyncio.gather(page.post("submit", body), page.post("submit", body))
    assert first.data["id"] == second.data["id"]
    await client.tasks.wait(first.data["id"], timeout=30)
    again = (await page.get("draft?path=twice.py")).data["draft"]
    third = await page.post("submit", {"path": "twice.py", "draft": again})
    assert third.data["id"] > first.data["id"]
    await client.tasks.wait(third.data["id"], timeout=30)


async def test_a_task_is_followed_suspended_resumed_and_stopped(
    page: Page, setup: JupyterSetup
) -> None:
    (setup.root / "count.py").write_text(COUNT)
    async with page.socket("events") as frame:
        id = (await hand_in(page, "count.py")).data["id"]
        await until(frame, id, lambda row: row.get("run") == "RUNNING")
        await page.post(f"tasks/{id}/suspend", {"hold": True})
        await until(frame, id, lambda row: row["state"] == "SUSPENDED" and row.get("held"))
        await page.post(f"tasks/{id}/resume", {})
        await until(frame, id, lambda row: row.get("run") == "RUNNING" and row.get("runs") == 2)
        await page.post(f"tasks/{id}/stop", {})
        row = await until(frame, id, lambda row: row["state"] == "FINISHED")
        assert row["outcome"] == "STOPPED"
    detail = (await page.get(f"tasks/{id}")).data
    assert [run["number"] for run in detail["runs"]] == [1, 2]
    assert detail["events"][0]["kind"] == "TaskSubmitted"
    assert "count.py" in detail["yaml"]


async def test_a_failed_task_comes_with_the_diagnosis_that_hai_why_gives(
    page: Page, setup: JupyterSetup, client: Client
) -> None:
    (setup.root / "broken.py").write_text("import nowhere\n")
    id = (await hand_in(page, "broken.py")).data["id"]
    await client.tasks.wait(id, timeout=30)
    why = (await page.get(f"tasks/{id}")).data["why"]
    found = diagnose(await client.tasks.get(id))
    assert found is not None
    assert why["constraints"] == list(found.found)
    assert why["suggestions"] == list(found.to_try)
    assert any("a Python package is missing" in sentence for sentence in why["constraints"])


async def test_a_log_is_read_to_its_last_line_and_goes_on_after_a_cursor(
    page: Page, setup: JupyterSetup, client: Client
) -> None:
    (setup.root / "lines.py").write_text("for i in range(500):\n    print('line', i)\n")
    id = (await hand_in(page, "lines.py")).data["id"]
    await client.tasks.wait(id, timeout=30)
    lines, cursor = await read_log(page, f"tasks/{id}/log")
    assert lines == [f"line {i}" for i in range(500)]
    assert (await read_log(page, f"tasks/{id}/log?cursor={quote(cursor)}"))[0] == []
    file = await page.get(f"tasks/{id}/log.txt")
    assert len(file.text.splitlines()) == 500


async def test_a_download_that_breaks_off_does_not_look_whole(
    page: Page, setup: JupyterSetup, client: Client
) -> None:
    (setup.root / "long.py").write_text("for i in range(300_000): print(i, 'x' * 100)\n")
    id = (await hand_in(page, "long.py")).data["id"]
    await client.tasks.wait(id, timeout=60)
    url = urlsplit(setup.lab.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    lines = (
        f"GET {url.path}hai_jupyter/tasks/{id}/log.txt HTTP/1.1",
        f"Host: {url.netloc}",
        f"Authorization: token {setup.lab.token}",
        "Connection: close",
    )
    writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
    assert b" 200 " in await reader.readline()
    setup.server.end()
    try:
        assert not (await reader.read()).endswith(b"\r\n0\r\n\r\n")
    finally:
        setup.server.start("--port", setup.profile.server.rpartition(":")[2])
        writer.close()


async def test_a_page_that_comes_back_gets_only_what_has_changed(
    page: Page, setup: JupyterSetup, client: Client
) -> None:
    (setup.root / "short.py").write_text("print(1)\n")
    async with page.socket("events") as frame:
        seen = await complete(frame)
        id = (await hand_in(page, "short.py")).data["id"]
        await client.tasks.wait(id, timeout=30)
        async with page.socket(f"events?board={seen['board']}&after={seen['version']}") as other:
            answer = await other()
            assert "reset" not in answer
            assert all(row["version"] > seen["version"] for row in answer["tasks"])
    polled = (await page.get("state?board=another&after=5")).data
    assert polled["reset"] is True
    assert id in [row["id"] for row in polled["tasks"]]


async def test_a_notebook_is_executed_and_its_output_kept(
    page: Page, setup: JupyterSetup, client: Client
) -> None:
    write_notebook(setup, "my book.ipynb", "lr = 1", "print('rate', lr)")
    answer = await hand_in(page, "my book.ipynb", parameters={"lr": "0.5"})
    assert answer.code == 200, answer.text
    task = await client.tasks.wait(answer.data["id"], timeout=60)
    assert task.outcome == 1, task.reason
    [out] = (setup.root / "hai_jobs").glob(f"my book-*.{task.id}.ipynb")
    done = NB.read(out, as_version=4)
    assert done.cells[0].metadata.tags == ["injected-parameters"]
    assert done.metadata.hai.state == "finished"
    assert (await page.get(f"tasks/{task.id}")).data["notebook"] == f"hai_jobs/{out.name}"
    assert not NB.read(setup.root / "my book.ipynb", as_version=4).cells[1].outputs


async def test_the_platform_goes_and_comes_back(page: Page, setup: JupyterSetup) -> None:
    async with page.socket("events") as frame:
        await complete(frame)
        setup.server.end()
        down = await facts(frame, lambda f: f.get("link", {}).get("reason") == "UNREACHABLE")
        assert down["link"]["up"] is False
        assert (await page.get("me")).code == 503
        setup.server.start("--port", setup.profile.server.rpartition(":")[2])
        await facts(frame, lambda f: f.get("link", {}).get("up") is True)


async def read_log(page: Page, path: str) -> tuple[list[str], str]:
    """Return all lines of a log, and the last cursor."""
    lines, cursor = [], ""
    async with page.socket(path) as frame:
        while not (answer := await frame()).get("end"):
            lines += [row[3] for row in answer["lines"]]
            cursor = answer["cursor"]
    return lines, cursor


async def until(frame: Any, id: int, wanted: Any) -> Any:
    """Return the row of a task as soon as it meets the condition."""
    while True:
        for row in (await frame())["tasks"]:
            if row["id"] == id and wanted(row):
                return row


async def complete(frame: Any) -> Any:
    """Return the facts of all frames up to the first complete state."""
    return await facts(frame, lambda found: found.get("version", 0) > 0)


async def facts(frame: Any, wanted: Any) -> Any:
    """Collect the facts of frames without their rows until the condition holds."""
    found: dict[str, Any] = {}
    while True:
        found |= {k: v for k, v in (await frame()).items() if k not in ("tasks", "nodes")}
        if wanted(found):
            return found


async def test_a_submission_names_the_artifacts_of_its_task(
    page: Page, setup: JupyterSetup, client: Client
) -> None:
    for version in ("1", "2"):
        await client.artifacts.create(Artifact(name="resnet", version=version, location="/ws/r"))
    shown = (await page.get("artifacts")).data
    assert [(one["name"], one["version"]) for one in shown] == [("resnet", "1"), ("resnet", "2")]
    (setup.root / "reads.py").write_text("print(1)\n")
    named = {"input": {"name": "resnet", "version": "1"}, "output": shown[1]}
    made = await hand_in(page, "reads.py", artifacts=named)
    found = await client.artifacts.of_task(made.data["id"])
    assert [one.artifact.version for one in found] == ["1", "2"]
    wrong = {
        "input": {"version": "1"},
        "inside": {"name": "x"},
        "output": {"name": "x", "version": 1},
    }
    refused = await hand_in(page, "reads.py", artifacts=wrong)
    assert (refused.code, len(refused.data["violations"])) == (400, 3)


async def test_use_of_a_task_is_numbers_that_a_page_can_draw(
    page: Page, setup: JupyterSetup
) -> None:
    (setup.root / "used.py").write_text("print(1)\n")
    made = await hand_in(page, "used.py")
    shown = (await page.get(f"tasks/{made.data['id']}/usage")).data
    assert shown["step"] >= 60
    assert shown["start"] < shown["end"]
    assert all(len(point) == 5 for one in shown["ranks"] for point in one["points"])
    assert (await page.get("tasks/999999/usage")).code == 404
    assert (await page.get(f"tasks/{made.data['id']}/usage?first=-1")).code == 400


async def test_the_form_says_what_has_changed_since_the_last_submission(
    page: Page, setup: JupyterSetup
) -> None:
    file = setup.root / "changing.py"
    file.write_text("print('one')\n")
    assert (await page.get("draft?path=changing.py")).data["changes"] is None
    made = await hand_in(page, "changing.py")
    file.write_text("print('two')\n")
    shown = (await page.get("draft?path=changing.py")).data["changes"]
    assert "-print('one')\n+print('two')" in shown
    await page.post(f"tasks/{made.data['id']}/stop", {})


NO_NOTEBOOKS = {
    "no kind of cell": {"cells": [{"source": "x", "metadata": {}, "outputs": []}]},
    "no source": {"cells": [{"cell_type": "code", "metadata": {}, "outputs": []}]},
    "a kernel that is none": {"cells": [], "metadata": {"kernelspec": []}},
    "tags that are none": {
        "cells": [{"cell_type": "raw", "source": "x", "metadata": {"tags": 5}}],
    },
}


@pytest.mark.parametrize("made", [pytest.param(v, id=k) for k, v in NO_NOTEBOOKS.items()])
async def test_what_is_no_notebook_is_told(page: Page, setup: JupyterSetup, made: Any) -> None:
    whole = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, **made}
    (setup.root / "none.ipynb").write_text(json.dumps(whole))
    await expect_no_notebook(page, "none.ipynb")


async def test_a_file_without_end_inside_is_no_notebook(page: Page, setup: JupyterSetup) -> None:
    (setup.root / "deep.ipynb").write_text("[" * 100_000)
    await expect_no_notebook(page, "deep.ipynb")


async def expect_no_notebook(page: Page, path: str) -> None:
    asks = (
        page.get(f"draft?path={path}"),
        page.post("check", {"path": path}),
        page.post("notebook/script", {"path": path}),
        page.post("notebook/clear", {"path": path}),
    )
    for ask in asks:
        answer = await ask
        assert answer.code == 400
        assert "not a notebook" in answer.data["message"]


@pytest.mark.parametrize(
    "path", [pytest.param("x" * 300, id="too long"), pytest.param("circle", id="a circle of links")]
)
async def test_a_path_that_leads_nowhere_is_told(
    page: Page, setup: JupyterSetup, path: str
) -> None:
    if not (setup.root / "circle").is_symlink():
        (setup.root / "circle").symlink_to("circle")
    for ask in (page.get(f"draft?path={path}"), page.get(f"workspace?path={path}")):
        assert (await ask).code == 404


async def test_numbers_of_a_url_that_are_none_are_passed_over(page: Page) -> None:
    assert (await page.get("state?after=%C2%B2")).code == 200
    assert (await page.get("tasks/1/log.txt?ranks=%C2%B2,99999999999")).code in (200, 404)


async def test_a_request_without_end_inside_is_refused(page: Page) -> None:
    assert (await page.post_text("check", "[" * 100_000)).code == 400


async def test_a_websocket_that_cannot_be_served_is_closed(page: Page) -> None:
    async with page.socket("tasks/1/log?cursor=%ff") as frame:
        assert await frame() is None


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        pytest.param("containers", {"idle_timeout": 3.6e12}, "too large", id="an idle time"),
        pytest.param("containers", {"name": "\ud83d"}, "not text", id="half of a character"),
        pytest.param("tasks/1/priority", {"priority": 10**12}, "too large", id="a priority"),
    ],
)
async def test_what_finds_no_room_in_a_message_is_told(
    page: Page, path: str, body: Any, said: str
) -> None:
    answer = await page.post(path, body)
    assert (answer.code, answer.data["reason"]) == (400, "USAGE")
    assert said in answer.data["message"]


async def test_what_tasks_use_just_now_is_asked_for_together(page: Page) -> None:
    assert (await page.get("usage?ids=1,2")).code == 200
    assert (await page.get("usage?ids=x")).data["violations"][0]["field"] == "ids"
    assert (await page.get("usage?ids=" + ",".join(["7"] * 101))).code == 400


async def test_nodes_are_checked_by_a_task_on_just_these(page: Page, client: Client) -> None:
    group = (await client.nodes.groups())[0].name
    names = [node.name for node in await client.nodes.list()][:1]
    made = (await page.post("nodes/check", {"nodes": names, "group": group})).data
    done = await client.tasks.wait(made["id"], timeout=60)
    options = (await client.tasks.get(done.id)).spec.options
    assert list(options.assigned_nodes) == names
    lines, _ = await read_log(page, f"tasks/{done.id}/log")
    assert any('"healthy"' in line for line in lines)
    refused = await page.post("nodes/check", {"nodes": ["no-such-node"], "group": group})
    assert (refused.code, "no-such-node" in refused.text) == (400, True)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        pytest.param(
            {"action": "kernel", "name": "torch"}, "install torch ipykernel", id="a kernel"
        ),
        pytest.param({"action": "create", "name": "e"}, "create e", id="extends what is here"),
        pytest.param(
            {"action": "create", "name": "e", "python": "3.11", "packages": ["a>=1", "b; rm"]},
            "create --no_extend --py 3.11 e 'a>=1' 'b; rm'",
            id="every word is quoted",
        ),
    ],
)
async def test_environments_are_made_by_a_line_for_a_terminal(
    page: Page, wish: Any, words: str
) -> None:
    line = (await page.post("environments/command", wish)).data["command"]
    assert line.endswith(f" -m haienv {words}")


async def test_a_line_for_a_terminal_takes_no_options_and_no_newlines(page: Page) -> None:
    wish = {"action": "x", "name": "-rf /", "python": "3;", "packages": ["--index-url", "a\nb"]}
    answer = await page.post("environments/command", wish)
    fields = [violation["field"] for violation in answer.data["violations"]]
    assert (answer.code, fields) == (400, ["action", "name", "python", "packages"])


TASK_FILE = """\
version: 2
name: from the file
priority: 20
spec: {entrypoint: "true", entrypoint_executable: true, environments: {A: "1", B: "2"}}
resource: {node_count: 2, group: default}
options: {tags: [mine], time_limit: 1h}
"""


async def test_the_form_of_a_task_file_begins_with_what_it_says(
    page: Page, setup: JupyterSetup
) -> None:
    (setup.root / "job.yml").write_text(TASK_FILE)
    draft = (await page.get("draft?path=job.yml")).data
    assert draft["name"] == "from the file"
    assert (draft["begin"]["priority"], draft["begin"]["resource"]["node_count"]) == (20, 2)
    assert draft["begin"]["options"]["tags"] == ["mine"]
    (setup.root / "job.yml").write_text(TASK_FILE.replace("priority", "pirority"))
    wrong = await page.get("draft?path=job.yml")
    assert wrong.code == 400
    assert "pirority" in wrong.data["message"]


async def test_what_is_taken_out_of_the_form_is_taken_out_of_a_task_file(
    page: Page, setup: JupyterSetup
) -> None:
    (setup.root / "less.yml").write_text(TASK_FILE)
    form = {"options": {"tags": None}, "spec": {"environments": {"A": None, "B": "3"}}}
    spec = (await page.post("check", {"path": "less.yml", "form": form})).data["spec"]
    assert spec["options"] == {"time_limit": 3600}
    assert (spec["spec"]["environments"], spec["resource"]["node_count"]) == ({"B": "3"}, 2)


async def test_a_task_is_submitted_again_as_it_was(page: Page, client: Client) -> None:
    program = ProgramSpec(entrypoint="true", entrypoint_executable=True)
    spec = TaskSpec(version=2, name="once more", spec=program, resource=ResourceSpec(node_count=1))
    spec.options.tags.append("kept")
    first = await client.tasks.create(spec)
    await client.tasks.wait(first.id, timeout=60)
    answer = await page.post(f"tasks/{first.id}/again", {})
    assert (answer.data["name"], answer.data["tags"]) == ("once more", ["kept"])
    assert answer.data["id"] > first.id
    await client.tasks.wait(answer.data["id"], timeout=60)
