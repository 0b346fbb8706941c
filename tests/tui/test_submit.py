"""Submitting: form and yaml are two views of one text, and the server's word stands beside what it is about."""

from __future__ import annotations

import pytest

from hai.client.errors import Violation
from hai.v1.task_spec_pb2 import TaskSpec
from hai_tui.i18n import known
from hai_tui.submit import draft as drafts


def test_every_line_has_a_name() -> None:
    assert [path for path in drafts.FIELDS if not known(f"submit.{path}")] == []


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        pytest.param("name", "bert", "name: bert", id="text"),
        pytest.param("resource.node_count", "4", "node_count: 4", id="number"),
        pytest.param("priority", "HIGH", "priority: 30", id="level"),
        pytest.param("options.tags", "a,b", "- b", id="list"),
        pytest.param("spec.parameters", "--lr '1 2'", "- 1 2", id="shell words"),
        pytest.param("options.time_limit", "2h30m", "time_limit", id="time"),
    ],
)
def test_a_line_of_the_form_is_a_line_of_the_yaml(path: str, value: str, line: str) -> None:
    changed = drafts.change(drafts.write(drafts.first("")), path, value)
    assert changed.violations == ()
    assert line in changed.text
    assert changed.spec is not None
    again = drafts.values(drafts.read(changed.text).spec or TaskSpec())
    assert again[path] == ("9000" if path == "options.time_limit" else value)


def test_what_can_not_be_read_is_said_of_its_line_and_changes_nothing() -> None:
    before = drafts.write(drafts.first(""))
    after = drafts.change(before, "resource.node_count", "many")
    assert [v.field for v in after.violations] == ["resource.node_count"]
    assert after.text == before.text


def test_wrong_yaml_has_lines() -> None:
    broken = drafts.read("version: 2\nname: x\nresource:\n  nodes: 3\n")
    assert broken.spec is None
    assert any(v.line == 4 for v in broken.violations)


@pytest.mark.parametrize(
    ("name", "next_name"),
    [pytest.param("train", "train-2", id="first"), pytest.param("train-9", "train-10", id="next")],
)
def test_the_same_again_has_a_name_of_its_own(name: str, next_name: str) -> None:
    assert drafts.again(TaskSpec(name=name)).name == next_name


@pytest.mark.parametrize(
    ("path", "field"),
    [
        pytest.param("resource.group", "resource.group", id="itself"),
        pytest.param("options.tags[1]", "options.tags", id="a part"),
        pytest.param("services[0].port", "", id="not in the form"),
    ],
)
def test_violations_find_their_lines(path: str, field: str) -> None:
    assert drafts.field_of(Violation(path, "wrong")) == field


async def test_it_begins_with_the_last_task_and_ends_with_the_new_one(
    server, drive, submit, client
) -> None:
    await submit("train", "sleep", "60")
    async with drive(server.profile, start="submit", size=(140, 40)) as tui:
        await tui.shows("train-2", "entrypoint: sleep", "✓ ")
        await tui.press("ctrl+s")
        await tui.shows("› task 2")
    assert (await client.tasks.get(2)).name == "train-2"


@pytest.mark.parametrize(
    "size", [pytest.param((80, 24), id="80x24"), pytest.param((200, 50), id="200x50")]
)
async def test_without_a_task_it_begins_with_an_example(server, drive, size) -> None:
    async with drive(server.profile, start="submit", size=size) as tui:
        await tui.shows("program", "train.py", "node group")


async def test_the_server_says_when_it_would_start(server, drive, submit) -> None:
    await submit("train", "sleep", "60", nodes=2)
    async with drive(server.profile, start="submit 1", size=(140, 40)) as tui:
        await tui.shows("○ would wait at place 1", "ahead of it", "what would help")
        await tui.press(*["tab"] * 5, "ctrl+u", *"9")
        await tui.shows("node_count: 9", "✗ ")


async def test_what_is_wrong_stands_beside_its_line(server, drive, submit) -> None:
    await submit("train", "sleep", "60")
    async with drive(server.profile, start="submit", size=(140, 40)) as tui:
        await tui.shows("✓ ")
        await tui.press(*["tab"] * 5, "ctrl+u", *"x")
        await tui.shows("✗ ", "1 to correct")
        await tui.press("ctrl+s")
        await tui.shows("correct first what is marked")
        await tui.press("ctrl+u", *"1")
        await tui.shows("✓ ")
        await tui.press(*["shift+tab"], "ctrl+u", *"nowhere")
        await tui.shows("group: nowhere", "✗ ")


async def test_the_yaml_fills_the_form(server, drive, submit) -> None:
    await submit("train", "sleep", "60")
    async with drive(server.profile, start="submit", size=(140, 40)) as tui:
        await tui.shows("✓ ")
        await tui.press("f2")
        area = tui.app.screen.area
        area.load_text(area.text.replace("train-2", "bert"))
        await tui.until(lambda: tui.app.screen._lines["name"].value == "bert")
        area.load_text(area.text + "nonsense: 1\n")
        await tui.shows("✗ nonsense")
        assert "line " in tui.screen()


async def test_a_file_is_saved_and_read(server, drive, submit, tmp_path) -> None:
    await submit("train", "sleep", "60")
    path = tmp_path / "t.yml"
    async with drive(server.profile, start="submit", size=(140, 40)) as tui:
        await tui.shows("✓ ")
        await tui.press("f5", "ctrl+u", *str(path), "enter")
        await tui.until(path.exists)
        path.write_text(path.read_text().replace("train-2", "other"))
        await tui.press("f4", *str(path), "enter")
        await tui.shows("name: other")


async def test_readonly_submits_nothing(server, drive, submit, client) -> None:
    await submit("train", "sleep", "60")
    async with drive(server.profile, start="submit", size=(140, 40), readonly=True) as tui:
        await tui.shows("✓ ")
        await tui.press("ctrl+s")
        await tui.shows("--readonly")
    assert len((await client.tasks.list()).tasks) == 1
