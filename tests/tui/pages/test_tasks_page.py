"""The list of tasks: filter, views, marks, actions on several tasks with a result each, undo, reconnect."""

from __future__ import annotations

import asyncio
import signal
import tomllib
from dataclasses import replace

import pytest

from hai.client.client import Client
from hai.v1.task_pb2 import TASK_OUTCOME_STOPPED
from hai.v1.task_spec_pb2 import OptionsSpec
from hai.v1.user_pb2 import ROLE_USER, User
from hai_tui.formatting.table import width
from hai_tui.widgets.table.virtual_table import VirtualTable


def table(tui) -> VirtualTable:
    return tui.app.screen.query_one(VirtualTable)


async def test_a_filter_narrows_while_it_is_typed_and_is_remembered(
    server, drive, submit, tmp_path
) -> None:
    for name in ("bert", "gpt", "bert2"):
        await submit(name)
    async with drive(server.profile) as tui:
        await tui.shows("3 tasks")
        await tui.press("/", *"bert")
        await tui.shows("2 of 3 tasks")
        await tui.press("enter", "escape")
        await tui.shows("3 tasks")
        await tui.press("/", "up")
        await tui.shows("2 of 3 tasks")
        await tui.press("escape")
        await tui.shows("3 tasks")
    stored = tomllib.loads((tmp_path / "config" / "tui.toml").read_text())
    assert stored["filters"] == ["bert"]


async def test_a_wrong_filter_is_told_of_while_it_is_typed(server, drive, submit) -> None:
    await submit("bert")
    async with drive(server.profile) as tui:
        await tui.shows("1 task")
        await tui.press("/", *"status:runing")
        await tui.shows("there is no status 'runing': did you mean running?")
        await tui.press("enter")  # an invalid filter stays in the line
        await tui.press(*["backspace"] * 3, *"ning", "enter")
        await tui.until(lambda: tui.app.screen._filter.source == "status:running")


async def test_a_name_that_nobody_has_is_questioned_where_the_filter_finds_nothing(
    server, drive, submit
) -> None:
    await submit("bert")
    async with drive(server.profile) as tui:
        await tui.shows("1 task")
        await tui.press("/", *"user:admim", "enter")
        await tui.shows("0 of 1 task", "there is no user admim: did you mean admin?")


async def test_a_view_is_saved_and_opened_again(server, drive, submit) -> None:
    for name in ("bert", "gpt"):
        await submit(name)
    async with drive(server.profile) as tui:
        await tui.shows("2 tasks")
        await tui.press("/", *"name:bert", "enter", "V", *"mine too", "enter")
        await tui.press("escape")
        await tui.shows("2 tasks")
        await tui.press("v")
        await tui.shows("mine too", "status:failed age:<7d")
        await tui.press("7")
        await tui.shows("1 of 2 tasks · name:bert")


async def test_a_failed_task_beyond_what_is_loaded_is_found_by_the_filter(
    server, drive, client, submit, monkeypatch
) -> None:
    monkeypatch.setattr("hai_tui.session.HISTORY", 0)
    task = await submit("old", "false")
    await client.tasks.wait(task.id, timeout=60)
    async with drive(server.profile) as tui:
        await tui.shows("no task yet")
        await tui.press("/", *"status:failed", "enter")
        await tui.shows("1 of 1 task", "✗ FAILED")


async def test_marked_tasks_are_stopped_together(server, drive, client, submit) -> None:
    for name in ("a", "b", "c"):
        await submit(name, nodes=2)
    async with drive(server.profile) as tui:
        await tui.shows("3 tasks")
        await tui.press("space", "space", "ctrl+d")
        await tui.shows("Stop 2 tasks: 3 c, 2 b?")
        await tui.press("p")
        await tui.shows("⊘ CANCELED", "stop: 2 tasks")
    assert [t.name async for t in client.tasks.all(filter="state:unfinished")] == ["a"]


async def test_a_question_about_tasks_with_long_names_leaves_room_for_the_answer(
    server, drive, submit
) -> None:
    for letter in "abcde":
        await submit(letter + "x" * 510)
    async with drive(server.profile, size=(80, 24)) as tui:
        await tui.shows("5 tasks")
        await tui.press("ctrl+a", "ctrl+d")
        await tui.shows("Stop 5 tasks: 5 exxx", "f  stop, and count as a failure")


async def test_each_failure_of_a_batch_is_told(server, drive, client, submit) -> None:
    task = await submit("ended", "true")
    await client.tasks.wait(task.id, timeout=60)
    await submit("runs", nodes=2)
    async with drive(server.profile) as tui:
        await tui.shows("2 tasks", "● RUNNING")
        await tui.press("ctrl+a", "u", "h")
        await tui.shows("suspend: 1 done, 1 refused", "✗ 1", "✓ 2 runs")


async def test_priority_and_hold_are_undone(server, drive, client, submit) -> None:
    await submit("first", nodes=2)
    task = await submit("second", nodes=2)
    async with drive(server.profile) as tui:
        await tui.shows("2 tasks")
        await tui.press("p")
        await tui.shows("Priority of 2 second")
        await tui.press("8")
        await tui.shows("priority: 2 second is LOW")
        await tui.until(lambda: tui.app.session.tasks.get(2).priority == 0)
        await tui.press("u", "h")
        await tui.shows("‖ HELD")
        await tui.press("z")
        await tui.until(lambda: not tui.app.session.tasks.get(2).held)
        await tui.press("z")
        await tui.until(lambda: tui.app.session.tasks.get(2).priority == 10)
    assert (await client.tasks.get(task.id)).priority == 10


async def test_order_in_the_own_queue_and_back(server, drive, submit, monkeypatch) -> None:
    monkeypatch.setattr(
        "hai_tui.session.QUEUE_SECONDS", 1.5
    )  # the scheduler's next pass may come a second later
    await submit("runs", nodes=2)
    for name in ("b", "c", "d"):
        await submit(name, nodes=2)

    def queue(tui) -> list[int]:
        waits = tui.app.session.tasks._waiting_by_id
        return sorted(waits, key=lambda id: waits[id].queue_place)

    async with drive(server.profile, size=(160, 24)) as tui:
        await tui.shows("4 tasks")
        await tui.until(lambda: queue(tui) == [2, 3, 4])
        await tui.press("F")
        await tui.until(lambda: queue(tui) == [4, 2, 3])
        await tui.press("z")
        await tui.shows("undo of move 4")
        await tui.until(lambda: queue(tui) == [2, 3, 4])


async def test_tags_and_stars(server, drive, client, submit) -> None:
    task = await submit("bert")
    async with drive(server.profile) as tui:
        await tui.shows("1 task")
        await tui.press("t", *"nlp old", "enter", "*")
        await tui.shows("★")
        await tui.until(lambda: list(tui.app.session.tasks.get(1).tags) == ["nlp", "old"])
        await tui.press("t", *"-old", "enter")
        await tui.shows("tags: 1 bert has the tags nlp", "star: 1 bert is starred")
        await tui.until(lambda: list(tui.app.session.tasks.get(1).tags) == ["nlp"])
        await tui.press("*")
        await tui.shows("star: 1 bert is not starred")
        await tui.press("z")
        await tui.shows("undo of star: 1 bert is starred")
    assert (await client.tasks.get(task.id)).starred


async def test_tags_are_for_the_tasks_that_the_line_names(server, drive, client, submit) -> None:
    stays, ends = await submit("stays"), await submit("ends")
    async with drive(server.profile, start="tasks status:unfinished") as tui:
        await tui.shows("2 of 2 tasks")
        await tui.press("t", *"old")
        await tui.shows("tags of 2 ends")
        await client.tasks.stop(ends.id)
        await tui.shows("1 of 2 tasks")
        await tui.press("enter")
        await tui.shows("tags: 2 ends has the tags old")
    assert not (await client.tasks.get(stays.id)).tags


async def test_what_is_typed_at_once_is_for_the_tasks_that_the_cursor_came_to(
    server, drive, client, submit
) -> None:
    for name in ("a", "b", "c"):
        await submit(name)
    async with drive(server.profile) as tui:
        await tui.shows("3 tasks")
        tui.types(*"*j*j")
        await tui.until(lambda: table(tui).cursor_id == 1)
        await tui.shows("3 c is starred", "2 b is starred")
    starred = [task.id async for task in client.tasks.all(filter="starred:true")]
    assert sorted(starred) == [2, 3]


async def test_what_is_typed_at_once_answers_the_questions_that_open(
    server, drive, client, submit
) -> None:
    first, second = await submit("a"), await submit("b")
    async with drive(server.profile) as tui:
        await tui.shows("2 tasks")
        tui.types("p", "1", "j", "ctrl+d", "escape", "p", "4", "ctrl+d", "p")
        await tui.shows("priority: 2 b is EXTREME_HIGH", "priority: 1 a is ABOVE_NORMAL")
        await tui.shows("■ STOPPED")
    assert (await client.tasks.get(first.id)).outcome == TASK_OUTCOME_STOPPED
    assert (await client.tasks.get(second.id)).priority == 50


async def test_an_answer_that_is_given_again_closes_nothing_else(server, drive, submit) -> None:
    await submit("a")
    async with drive(server.profile) as tui:
        await tui.shows("1 task")
        await tui.press("p")
        await tui.shows("EXTREME_HIGH 50")
        tui.types("down", *["enter"] * 3)
        await tui.shows("priority: 1 a is", "HAI › tasks")


async def test_what_the_role_forbids_is_struck_out_and_says_which_right_is_missing(
    server, drive, client, submit, program
) -> None:
    await submit("of-admin")
    await client.users.create(User(name="ada", role=ROLE_USER, groups=["lab"], active=True))
    await client.users.create(User(name="bob", role=ROLE_USER, groups=["lab"], active=True))
    ada = await client.users.create_token(user="ada")
    bob = await client.users.create_token(user="bob")
    async with Client(replace(server.profile, token=ada.secret)) as of_ada:
        await of_ada.tasks.create(program("hers", options=OptionsSpec(shared_in_group=True)))
    async with drive(replace(server.profile, token=bob.secret)) as tui:
        await tui.shows("bob (user)", "hers")
        await tui.press("ctrl+d")
        await tui.shows("stop of a task of ada needs the right manage_tasks")


async def test_readonly_refuses_every_change(server, drive, submit) -> None:
    await submit("bert")
    async with drive(server.profile, readonly=True) as tui:
        await tui.shows("read-only", "bert")
        for key in ("ctrl+d", "u", "r", "p", "t", "*", "F", "z"):
            await tui.press(key)
            await tui.shows("--readonly")
            tui.app.clear_notifications()


async def test_what_has_finished_is_shown_however_many_tasks_wait(
    server, drive, client, submit, monkeypatch
) -> None:
    monkeypatch.setattr("hai_tui.session._PAGE", 2)
    monkeypatch.setattr("hai_tui.session.HISTORY", 4)
    ended = await submit("ended", "true")
    await client.tasks.wait(ended.id, timeout=60)
    for n in range(5):
        await submit(f"waits-{n}", nodes=2)
    async with drive(server.profile) as tui:
        await tui.shows("6 tasks", "ended", "✓ SUCCEEDED")


async def test_a_server_that_was_killed_comes_back_and_nothing_is_doubled_or_moved(
    process, drive, program
) -> None:
    profile = await asyncio.to_thread(process.start, "--port", "0")
    async with Client(profile) as client, drive(profile) as tui:
        for n in range(30):
            await client.tasks.create(program(f"t{n}"))
        await tui.shows("30 tasks", "● live")
        await tui.press(*["down"] * 12, "space", "up")
        chosen, offset = table(tui).cursor_id, table(tui).scroll_offset.y
        await asyncio.to_thread(process.end, signal.SIGKILL)
        await tui.shows("cannot reach the server at", "old", "✗ no server")
        await asyncio.to_thread(process.start, "--port", profile.server.rpartition(":")[2])
        await tui.shows("● live")
        await client.tasks.create(program("after"))
        await tui.shows("31 tasks", "● live")
        assert table(tui).cursor_id == chosen
        assert len(table(tui).marked) == 1
        assert table(tui).scroll_offset.y == offset + 1  # a row was inserted above
        assert sorted(table(tui).ids) == list(range(1, 32))


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=str)
async def test_chinese_names_keep_their_columns(server, drive, submit, size) -> None:
    await submit("训练-大模型-第一次")
    async with drive(server.profile, size=size) as tui:
        await tui.shows("训练-大模型", "● RUNNING")
        lines = tui.screen().splitlines()
        assert {width(line) for line in lines} == {size[0]}


async def test_a_picture_that_is_saved_keeps_wide_characters_in_their_places(
    server, drive, submit, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await submit("训练")
    async with drive(server.profile) as tui:
        await tui.shows("训练")
        await tui.press("ctrl+s")
        await tui.shows(".svg")
    (saved,) = tmp_path.glob("*.svg")
    assert "训\u200b练\u200b" in saved.read_text("utf-8")


async def test_a_picture_of_a_dialog_shows_what_is_below_it(server, drive) -> None:
    async with drive(server.profile) as tui:
        await tui.shows("live")
        await tui.press("ctrl+p")
        await tui.shows("Search")
        tui.app.screen.refresh()
        assert ">HAI<" in tui.app.export_screenshot()


async def test_one_key_shows_all_of_a_sweep(server, drive, submit) -> None:
    for name in ("a", "b"):
        await submit(name, options=OptionsSpec(tags=["lr", "train-1f"]))
    await submit("c", options=OptionsSpec(tags=["lr"]))
    await submit("d")
    async with drive(server.profile) as tui:
        await tui.shows("4 tasks")
        await tui.press("#")
        await tui.shows("it has no tag; t adds some")
        await tui.press("j", "#")
        await tui.shows("3 of 4 tasks")
        await tui.press("#")
        await tui.shows("4 tasks")
        await tui.press("j", "#", "ctrl+a")
        await tui.shows("2 of 4 tasks · tag:lr tag:train-1f · 2 marked")
