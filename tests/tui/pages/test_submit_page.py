"""The submit page: form and yaml show the same task spec, and the server's messages appear beside their fields."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai.client.errors import Violation
from hai.v1.task_spec_pb2 import ServiceSpec, TaskSpec
from hai_tui.i18n import exists
from hai_tui.submit import draft as drafts
from hai_tui.submit import list_fields


def test_every_line_has_a_name() -> None:
    assert [path for path in drafts.FIELDS if not exists(f"submit.{path}")] == []


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        pytest.param("name", "bert", "name: bert", id="text"),
        pytest.param("resource.node_count", "4", "node_count: 4", id="number"),
        pytest.param("priority", "HIGH", "priority: 30", id="level"),
        pytest.param("options.tags", "a,b", "- b", id="list"),
        pytest.param("spec.parameters", "--lr '1 2'", "- 1 2", id="shell words"),
        pytest.param("options.time_limit", "2h30m", "time_limit", id="time"),
        pytest.param("options.mount_code", "3", "mount_code: 3", id="mounts"),
        pytest.param("resource.is_spot", "yes", "is_spot: true", id="yes"),
        pytest.param("spec.environments", ["A=b = c", "SEED=7"], "SEED: '7'", id="variables"),
        pytest.param("options.after", ["12", "13:ended"], "- task: 12", id="tasks before"),
        pytest.param("services", ["jupyter", "board http 80"], "port: 80", id="services"),
    ],
)
def test_a_line_of_the_form_is_a_line_of_the_yaml(
    path: str, value: str | list[str], line: str
) -> None:
    changed = drafts.set_field(drafts.draft_of(drafts.initial_spec()), path, value)
    assert changed.violations == ()
    assert line in changed.text
    assert changed.spec is not None
    again = drafts.field_values(drafts.read_draft(changed.text).spec or TaskSpec())
    assert again[path] == ("9000" if path == "options.time_limit" else value)


def test_what_can_not_be_read_is_said_of_its_line_and_changes_nothing() -> None:
    before = drafts.draft_of(drafts.initial_spec())
    after = drafts.set_field(before, "resource.node_count", "many")
    assert [v.field for v in after.violations] == ["resource.node_count"]
    assert after.text == before.text


def test_a_field_that_cannot_be_read_stays_wrong_while_others_change() -> None:
    wrong = drafts.set_field(drafts.draft_of(drafts.initial_spec()), "resource.node_count", "many")
    wrong = drafts.set_field(wrong, "options.after", ["fit"])
    after = drafts.set_field(wrong, "name", "other")
    assert "name: other" in after.text
    assert [v.field for v in after.violations] == ["resource.node_count", "options.after[0]"]
    mended = drafts.set_field(after, "options.after", ["7"])
    assert drafts.set_field(mended, "resource.node_count", "2").violations == ()


def test_which_rules_a_draft_breaks_is_known_without_a_server() -> None:
    text = "version: 2\nname: x(\nspec: {entrypoint: a.py}\nresource: {node_count: 0}\n"
    read = drafts.read_draft(text)
    assert read.spec is not None, "the form still shows it"
    assert [each.field for each in read.find_violations()] == ["name", "resource.node_count"]
    mended = drafts.set_field(drafts.set_field(read, "name", "x"), "resource.node_count", "2")
    assert mended.find_violations() == ()


def test_which_tasks_go_first_is_read_a_line_each() -> None:
    spec = TaskSpec()
    assert list_fields.set_lines(spec, "options.after", ["", " 12 : failed ", "7"]) == ()
    assert list_fields.get_lines(spec, "options.after") == ["12:failed", "7"]
    wrong = list_fields.set_lines(spec, "options.after", ["1", "fit", "2:fail"])
    assert [v.field for v in wrong] == ["options.after[1]", "options.after[2]"]
    assert list_fields.get_lines(spec, "options.after") == ["12:failed", "7"]
    assert list_fields.violation_paths("options.after", ["", "7"]) == ["", "options.after[0]"]
    unknown = Violation("task.options.after[1].task", "there is no task 99")
    assert drafts.field_of(unknown) == "options.after[1]"


def test_wrong_yaml_has_lines() -> None:
    broken = drafts.read_draft("version: 2\nname: x\nresource:\n  nodes: 3\n")
    assert broken.spec is None
    assert any(v.line == 4 for v in broken.violations)


@pytest.mark.parametrize(
    ("name", "next_name"),
    [pytest.param("train", "train-2", id="first"), pytest.param("train-9", "train-10", id="next")],
)
def test_the_same_again_has_a_name_of_its_own(name: str, next_name: str) -> None:
    assert drafts.resubmission_of(TaskSpec(name=name)).name == next_name


@pytest.mark.parametrize(
    ("path", "field"),
    [
        pytest.param("resource.group", "resource.group", id="itself"),
        pytest.param("options.tags[1]", "options.tags", id="a part"),
        pytest.param("services[1].port", "services[1]", id="one of a list"),
        pytest.param("spec.environments[A]", "spec.environments[A]", id="a variable"),
        pytest.param("roles[0].count", "", id="not in the form"),
    ],
)
def test_violations_find_their_lines(path: str, field: str) -> None:
    assert drafts.field_of(Violation(path, "wrong")) == field


@pytest.mark.parametrize(
    ("line", "service"),
    [
        pytest.param("jupyter", ServiceSpec(name="jupyter"), id="built in"),
        pytest.param("a tcp 80", ServiceSpec(name="a", type="tcp", port=80), id="port"),
        pytest.param("a 80", ServiceSpec(name="a", type="http", port=80), id="http is usual"),
        pytest.param(
            "a http 80 rewrite run --port 80",
            ServiceSpec(
                name="a", type="http", port=80, rewrite_uri=True, startup_script="run --port 80"
            ),
            id="command",
        ),
        pytest.param(
            "a local rank=0,2 -- rewrite it",
            ServiceSpec(name="a", type="local", rank=[0, 2], startup_script="rewrite it"),
            id="a command that looks like a setting",
        ),
    ],
)
def test_a_service_is_a_line(line: str, service: ServiceSpec) -> None:
    spec = TaskSpec()
    assert list_fields.set_lines(spec, "services", ["", line, " "]) == ()
    assert list(spec.services) == [service]


_words = st.text("abl80-= ", max_size=12).map(str.strip)


@given(
    st.lists(
        st.builds(
            ServiceSpec,
            name=st.sampled_from(["a", "http", "80"]),
            type=st.sampled_from(["http", "tcp", "local"]),
            port=st.integers(0, 65535),
            rank=st.lists(st.integers(0, 99), max_size=3),
            rewrite_uri=st.booleans(),
            startup_script=_words | st.sampled_from(["rewrite", "-- x", "rank=1 y", "80", "tcp"]),
        ),
        max_size=3,
    )
)
def test_the_lines_of_services_read_back(services: list[ServiceSpec]) -> None:
    spec = TaskSpec(services=services)
    list_fields.set_lines(spec, "services", list_fields.get_lines(spec, "services"))
    assert list(spec.services) == services


def test_a_variable_stands_there_once() -> None:
    before = drafts.draft_of(drafts.initial_spec())
    after = drafts.set_field(before, "spec.environments", ["A=1", "", "A=2"])
    assert [v.field for v in after.violations] == ["spec.environments[A]"]
    assert after.text == before.text


async def test_variables_and_services_have_a_line_each(server, drive, submit, client) -> None:
    await submit("train", "sleep", "60")
    async with drive(server.profile, start="submit", size=(140, 40)) as tui:
        await tui.shows("train-2", "✓ ")
        await tui.press(*["tab"] * 3, *"SEED=7")
        await tui.shows("SEED: '7'")
        await tui.press("tab", *"LR=1e-3")
        await tui.shows("LR: 1e-3")
        await tui.press(*["down"] * 12, *"board http 99999 serve")
        await tui.shows("port: 99999", "✗ must be from 1 to 65535", "1 to correct")
        await tui.press("home", *["right"] * 11, *["delete"] * 5, *"6006")
        await tui.shows("port: 6006", "✓ ")
        area = tui.app.screen.yaml_area
        area.load_text(
            area.text.replace("SEED: '7'", "SEED: '8'").replace("name: board", "name: b")
        )
        await tui.until(lambda: tui.app.screen.form.value("services") == ["b http 6006 serve"])
        assert tui.app.screen.form.value("spec.environments") == ["LR=1e-3", "SEED=8"]
        await tui.shows("train-2", "✓ ")
        await tui.press("ctrl+s")
        await tui.shows("› task 2")
    spec = (await client.tasks.get(2)).spec
    assert dict(spec.spec.environments) == {"LR": "1e-3", "SEED": "8"}
    assert [(each.name, each.port) for each in spec.services] == [("b", 6006)]


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
        await tui.press(*["tab"] * 6, "ctrl+u", *"9")
        await tui.shows("node_count: 9", "✗ ")


async def test_the_yaml_follows_each_key_also_while_a_field_is_wrong(server, drive, submit) -> None:
    await submit("train", "sleep", "60")
    async with drive(server.profile, start="submit", size=(140, 40)) as tui:
        await tui.shows("train-2", "✓ ")
        for key, shown in (("x", "name: train-2x"), ("y", "name: train-2xy")):
            await tui.press(key)
            assert shown in tui.app.screen.yaml_area.text
        await tui.press(*["tab"] * 6, "ctrl+u", "z", *["shift+tab"] * 6, "q")
        assert "name: q\n" in tui.app.screen.yaml_area.text
        await tui.shows("✗ must be a whole number", "1 to correct")
        await tui.press("ctrl+s")
        await tui.shows("correct first what is marked")


async def test_what_is_wrong_stands_beside_its_line(server, drive, submit) -> None:
    await submit("train", "sleep", "60")
    async with drive(server.profile, start="submit", size=(140, 40)) as tui:
        await tui.shows("train-2", "✓ ")
        await tui.press(*["tab"] * 6, "ctrl+u", *"x")
        await tui.shows("✗ ", "1 to correct")
        await tui.press("ctrl+s")
        await tui.shows("correct first what is marked")
        await tui.press("ctrl+u", *"1")
        await tui.shows("train-2", "✓ ")
        await tui.press(*["shift+tab"], "ctrl+u", *"nowhere")
        await tui.shows("group: nowhere", "✗ ")


async def test_the_yaml_fills_the_form(server, drive, submit) -> None:
    await submit("train", "sleep", "60")
    async with drive(server.profile, start="submit", size=(140, 40)) as tui:
        await tui.shows("train-2", "✓ ")
        await tui.press("f2")
        area = tui.app.screen.yaml_area
        area.load_text(area.text.replace("train-2", "bert"))
        await tui.until(lambda: tui.app.screen.form.value("name") == "bert")
        area.load_text(area.text + "nonsense: 1\n")
        await tui.shows("✗ nonsense")
        assert "line " in tui.screen()


@pytest.mark.parametrize("key", ["f4", "f5"])
async def test_a_file_below_nobodys_home_is_told(
    server, drive, submit, tmp_path, monkeypatch, key: str
) -> None:
    monkeypatch.chdir(tmp_path)
    await submit("train")
    async with drive(server.profile, size=(120, 40), start="submit") as tui:
        await tui.shows("train")
        await tui.press(key, "ctrl+u", *"~nobody-here/task.yml", "enter")
        await tui.shows("cannot", "~nobody-here/task.yml: ")


async def test_a_file_is_saved_and_read(server, drive, submit, tmp_path) -> None:
    await submit("train", "sleep", "60")
    path = tmp_path / "t.yml"
    async with drive(server.profile, start="submit", size=(140, 40)) as tui:
        await tui.shows("train-2", "✓ ")
        await tui.press("f5", "ctrl+u", *str(path), "enter")
        await tui.until(lambda: path.exists() and path.read_text())
        path.write_text(path.read_text().replace("train-2", "other"))
        await tui.press("f4", *str(path), "enter")
        await tui.shows("name: other")


async def test_what_was_written_is_not_lost_unasked(server, drive, submit) -> None:
    await submit("train", "sleep", "60")
    async with drive(server.profile, size=(140, 40)) as tui:
        await tui.shows("1 task")
        await tui.press("n")
        await tui.shows("train-2", "✓ ")
        await tui.press("escape")
        await tui.until(
            lambda: "› submit" not in tui.screen()
        )  # the form is unchanged, so the page closes without a question
        await tui.press("n")
        await tui.shows("train-2", "✓ ")
        await tui.press("x", "escape")
        await tui.shows("Leave? What was written here is not kept")
        await tui.press("n", "y")
        await tui.shows("name: train-2xy")
        await tui.press("escape")
        await tui.shows("Leave?")
        await tui.press("y")
        await tui.until(lambda: "› submit" not in tui.screen())


async def test_readonly_submits_nothing(server, drive, submit, client) -> None:
    await submit("train", "sleep", "60")
    async with drive(server.profile, start="submit", size=(140, 40), readonly=True) as tui:
        await tui.shows("train-2", "✓ ")
        await tui.press("ctrl+s")
        await tui.shows("--readonly")
    assert len((await client.tasks.list()).tasks) == 1
