"""The parts that all pages share: connection, banner, keys, palette, the prompt to go to a page."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from textual import events

from hai.client import profile as profiles
from hai.client.profile import Profile
from hai_tui.runtime.textual_compat import later


async def test_a_task_shows_up_by_itself(server, drive, submit) -> None:
    async with drive(server.profile) as tui:
        await tui.shows("● live", "no task yet")
        await submit("train")
        await tui.shows("train", "● RUNNING")


async def test_a_server_that_is_not_there_is_told_of_and_tried_again(drive) -> None:
    async with drive(Profile("lab", "127.0.0.1:1", "t")) as tui:
        assert "HAI › tasks" in tui.screen()
        await tui.shows("cannot reach the server at 127.0.0.1:1: Connection refused · check the")
        await tui.shows("nothing was loaded yet", "next try in", "✗ no server")


@pytest.mark.parametrize(
    ("profile", "told"),
    [
        pytest.param(Profile("lab", "lab"), "is not the address of a server · write HOST:PORT", id="address"),
        pytest.param(Profile("lab", "127.0.0.1:1", "tökén"), "store it again with `hai init`", id="token"),
        pytest.param(Profile("lab", "127.0.0.1:1", ca="/no/ca"), "read the certificate file /no/ca", id="ca"),
    ],
)  # fmt: skip
async def test_what_no_server_can_be_asked_with_is_told_above_the_page(
    drive, profile: Profile, told: str
) -> None:
    async with drive(profile, size=(200, 24)) as tui:
        await tui.shows(told, "ctrl+r tries")


async def test_go_to_opens_a_page_and_escape_comes_back(server, drive, submit) -> None:
    await submit("train")
    async with drive(server.profile) as tui:
        await tui.shows("train")
        await tui.press(":", *"task 1", "enter")
        await tui.shows("HAI › tasks › task 1")
        await tui.press("escape")
        await tui.until(lambda: "› task 1" not in tui.screen())


async def test_what_is_typed_before_a_page_has_opened_is_for_that_page(server, drive) -> None:
    async with drive(server.profile) as tui:
        await tui.shows("● live")
        tasks = tui.app.screen
        for key in "2:":  # a terminal may send several keys at once
            await tasks.on_key(events.Key(key, key))
        await tui.press(*"nodes", "enter")
        await tui.shows("HAI › tasks › cluster › nodes")


async def test_a_line_to_type_in_takes_the_place_of_the_keys_and_nothing_else_moves(
    server, drive
) -> None:
    async with drive(server.profile) as tui:
        await tui.shows("● live", "? keys")
        height = tui.app.screen.query_one("#content").size.height
        await tui.press("/")
        lines = tui.screen().splitlines()
        assert "filter" in lines[-1]
        assert "? keys" not in tui.screen()
        assert tui.app.screen.query_one("#content").size.height == height
        await tui.press("escape")
        assert "? keys" in tui.screen().splitlines()[-1]


async def test_what_waits_a_little_comes_also_where_the_machine_stood_still(
    drive, monkeypatch
) -> None:
    async with drive(Profile("lab", "127.0.0.1:1", "t")) as tui:
        came, clock = [], itertools.count(1000)
        monkeypatch.setattr("textual.timer._time.get_time", lambda: float(next(clock)))
        later(tui.app, 0.01, lambda: came.append(1))
        await tui.until(lambda: came)


async def test_whoever_asks_after_the_end_is_not_answered(server, drive) -> None:
    async with drive(server.profile, start="tokens") as tui:
        await tui.shows("1 in all")
        await tui.app.disconnect()
        tui.app.screen.reload()
        await tui.pilot.pause(0.1)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param("taks", "did you mean task", id="nearest name"),
        pytest.param("task", "usage: :task TASK (for example :task 12)", id="words are missing"),
    ],
)
async def test_a_line_that_opens_nothing_says_why(server, drive, line: str, told: str) -> None:
    async with drive(server.profile) as tui:
        await tui.press(":", *line, "enter")
        await tui.shows(told)


async def test_the_keys_of_the_page_are_one_key_away(server, drive) -> None:
    async with drive(server.profile, size=(100, 100)) as tui:
        await tui.press("?")
        await tui.shows("on this page", "everywhere", ":tasks", "● RUNNING")
        await tui.press("escape")
        await tui.until(lambda: "everywhere" not in tui.screen())


async def test_without_a_profile_the_first_start_asks_for_one(server, drive, tmp_path) -> None:
    async with drive(None) as tui:
        await tui.shows("Welcome to HAI Platform")
        await tui.press(*server.profile.server, "enter", *server.profile.token, "enter")
        await tui.shows("HAI › tasks", "● live")
    stored = tmp_path / "config" / "config.toml"
    assert stored.stat().st_mode & 0o777 == 0o600
    assert server.profile.token in stored.read_text()


@pytest.mark.parametrize("keys", [["ctrl+r"], ["P", "enter"]], ids=["try again", "choose"])
async def test_a_token_that_was_replaced_is_taken_where_the_old_one_is_refused(
    server, drive, keys: list[str]
) -> None:
    profiles.save(replace(server.profile, name="lab", token="revoked"))
    async with drive(None) as tui:
        await tui.shows("⊘ refused", "does not accept the token")
        profiles.save(replace(server.profile, name="lab"))
        await tui.press(*keys)
        await tui.shows("lab · admin (admin) · ● live")


async def test_profiles_that_can_not_be_read_are_told_and_the_app_goes_on(server, drive) -> None:
    async with drive(server.profile) as tui:
        await tui.shows("● live")
        profiles.config_path().parent.mkdir(exist_ok=True)
        profiles.config_path().write_text("[[")
        await tui.press("P")
        await tui.until(lambda: any("config.toml" in n.message for n in tui.app._notifications))
        await tui.shows("cannot read", "● live")


async def test_on_the_first_start_what_is_no_address_is_told_and_can_be_mended(drive) -> None:
    async with drive(None) as tui:
        await tui.shows("Welcome to HAI Platform")
        await tui.press(*"lab", "enter", "t", "enter")
        await tui.shows("'lab' is not the address of a server", "write HOST:PORT")


async def test_on_the_first_start_a_profile_that_can_not_be_stored_is_told(
    server, drive, tmp_path
) -> None:
    (tmp_path / "config").symlink_to("nowhere")
    async with drive(None) as tui:
        await tui.shows("Welcome to HAI Platform")
        await tui.press(*server.profile.server, "enter", *server.profile.token, "enter")
        await tui.shows("cannot write", "exists")  # compared in parts, because the path is long


async def test_quitting_leaves_no_stream_open(open_streams, server, drive) -> None:
    async with drive(server.profile) as tui:
        await tui.shows("● live")
        await tui.until(lambda: open_streams() == 1)
        await tui.press("q")
    assert open_streams() == 0


async def test_of_a_long_way_the_end_is_seen_and_a_task_is_one_page(server, drive, submit) -> None:
    await submit("a-task-with-a-long-name")
    async with drive(server.profile, size=(80, 24)) as tui:
        await tui.shows("RUNNING")
        for line in ("cluster", "queue", "task 1", "task 1 why"):
            tui.app.goto(line)
            await tui.pilot.pause()
        await tui.shows("HAI › … › queue › task 1 a-task-with-a-long-name", "[why]")
        await tui.press("escape")
        await tui.shows("HAI › tasks › cluster › queue")


async def test_help_says_once_what_a_page_can(server, drive) -> None:
    async with drive(server.profile, size=(140, 60)) as tui:
        await tui.press("?")
        await tui.shows("on this page", "everywhere")
        elsewhere = tui.screen().partition("everywhere")[2]
        assert "^d" not in elsewhere.partition(":tasks")[0]


async def test_where_letters_are_typed_they_are_no_keys(server, drive) -> None:
    async with drive(server.profile, start="submit", size=(120, 30)) as tui:
        await tui.shows("f1 keys")
        assert "? keys" not in tui.screen()
        assert "q quit" not in tui.screen()
        await tui.press("f1")
        await tui.shows("on this page", "f5")


async def test_a_page_that_wants_two_words_says_so(server, drive) -> None:
    async with drive(server.profile) as tui:
        await tui.press(":", *"diff", "space", "1", "enter")
        await tui.shows("usage: :diff TASK TASK (for example :diff 12 13)")


async def test_keys_in_a_field_are_done_in_the_order_in_which_they_come(server, drive) -> None:
    async with drive(server.profile) as tui:
        await tui.shows("● live")
        tui.types("/", *"gpt", *["backspace"] * 3, *"ert", "home", "b")
        await tui.shows("0 of 0 tasks · bert")
        await tui.press("escape", *":submit", "enter")
        await tui.shows("program")
        tui.types(*["backspace"] * 30, *"gpt", "backspace", "backspace", "x")
        await tui.until(lambda: tui.app.screen.form.value("name") == "gx")
        tui.types("y", "down", "a", "tab", "b", "up", "c", "shift+tab", "z")
        # Typing replaces the text of a field that gets the focus, because it is selected.
        await tui.until(lambda: tui.app.screen.form.value("name") == "z")
        assert tui.app.screen.form.value("spec.entrypoint") == "c"
        assert tui.app.screen.form.value("spec.parameters") == "b"
        await tui.press("f2")
        area = tui.app.screen.yaml_area
        await tui.until(lambda: area.has_focus)
        tui.types("pagedown", *"# ab", "backspace", "c")
        await tui.until(lambda: "# ac" in area.text)
