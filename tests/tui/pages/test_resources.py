"""List pages with a real server: each page opens, forms send their values, and errors appear beside the fields."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hai.client.profile import Profile
from hai.v1.user_pb2 import ROLE_USER, Quota, User
from hai_backend.api.request.limits import QUEUE_TASKS
from hai_tui.i18n import exists
from hai_tui.page_registry import PAGES
from hai_tui.resources import resources
from hai_tui.resources.resource_spec import Answers


@pytest.fixture
async def user(server, client) -> Profile:
    """Somebody who may do no more than everybody."""
    await client.users.create(User(name="ada", role=ROLE_USER, active=True, groups=["lab"]))
    token = await client.users.create_token(user="ada")
    return Profile("ada", server.profile.server, token.secret)


NAMES = [page.name for page in PAGES if page.class_path == "resource:ResourcePage"]


def test_every_kind_has_a_page_and_its_texts() -> None:
    assert sorted(NAMES) == sorted(resources())
    wanted = {f"page.{name}" for name in NAMES} | {f"page.{name}.about" for name in NAMES}
    wanted |= {f"do.{verb.name}" for r in resources().values() for verb in r.verbs}
    wanted |= {f"kind.{r.name}" for r in resources().values() if r.verbs}
    assert [key for key in sorted(wanted) if not exists(key)] == []


def test_keys_of_a_page_are_its_own() -> None:
    for resource in resources().values():
        keys = [verb.key for verb in resource.verbs]
        assert len(keys) == len(set(keys))
        assert not set(keys) & set("/cwdy")


async def test_every_page_opens(server, drive) -> None:
    async with drive(server.profile, size=(120, 30)) as tui:
        await tui.shows("● live")
        for name in NAMES:
            tui.app.goto(name)
            await tui.shows(f"› {name}", " in all")
            await tui.press("escape")


async def test_a_quota_is_set_changed_and_deleted(server, drive, client, user) -> None:
    async with drive(server.profile, start="quotas", size=(120, 30)) as tui:
        await tui.shows("0 in all")
        await tui.press("a")
        await tui.shows("add: a quota", "for whom", "node group")
        await tui.press(*"ada", "enter", "enter", "enter", "enter", *"4", "enter", "enter")
        await tui.shows("done · add", "ada", "1 in all", "░░░░░░░░░░ 0%")
        await tui.press("e")
        await tui.shows("edit: ada/default/ALL")
        await tui.press("ctrl+u", *"6", "ctrl+s")
        await tui.until(lambda: "edit: ada" not in tui.screen())
        assert [(q.subject, q.nodes) for q in await client.users.quotas()] == [("ada", 6)]
        await tui.press("ctrl+d")
        await tui.shows("delete: ada/default/ALL?")
        await tui.press("y")
        await tui.shows("0 in all")
        assert list(await client.users.quotas()) == []


async def test_a_list_that_is_not_all_of_it_says_so(server, drive, submit, monkeypatch) -> None:
    for name in ("a", "b"):
        await submit(name, nodes=2)
    queue = replace(resources()["queue"], limit=1)
    monkeypatch.setitem(resources(), "queue", queue)
    async with drive(server.profile, start="queue") as tui:
        await tui.shows("the first 1, no more are listed")


def test_what_a_server_names_of_its_queue_is_known() -> None:
    assert resources()["queue"].limit == QUEUE_TASKS


async def test_what_is_typed_before_a_form_has_opened_is_in_it(server, drive) -> None:
    async with drive(server.profile, start="quotas", size=(120, 30)) as tui:
        await tui.shows("0 in all")
        tui.types("a", *"queue")
        await tui.shows("add: a quota", "for whom                   queue")


@pytest.mark.parametrize(
    ("page", "keys", "told"),
    [
        pytest.param("quotas", ("adda",), "no user adda: did you mean ada?", id="user"),
        pytest.param("rights", ("labb", "tab", "ctrl+u", "yes"), "in the user group labb", id="user group"),
        pytest.param("shares", ("lab", "tab", "ctrl+u", "defalt"), "belongs to the group defalt", id="node group"),
    ],
)  # fmt: skip
async def test_a_name_that_nobody_knows_is_questioned_beside_its_field(
    server, drive, user, page: str, keys: tuple[str, ...], told: str
) -> None:
    async with drive(server.profile, start=page, size=(120, 40)) as tui:
        await tui.shows("0 in all")
        await tui.press("a")
        typed = [key for each in keys for key in ([each] if each in ("tab", "ctrl+u") else each)]
        await tui.press(*typed, "ctrl+s")
        await tui.shows(told)
        said = next(str(line.render()) for line in tui.app.screen.query(".wrong"))
        assert said.endswith("· send again to confirm")


async def test_what_is_questioned_is_sent_when_it_is_meant(server, drive, client, user) -> None:
    async with drive(server.profile, start="quotas", size=(120, 40)) as tui:
        await tui.shows("0 in all")
        await tui.press("a", *"labb", "tab", "ctrl+u", *"yes", "ctrl+s")
        await tui.shows("did you mean lab?")
        assert list(await client.users.quotas()) == []
        await tui.press("ctrl+s")
        await tui.shows("1 in all")
        assert [q.subject for q in await client.users.quotas()] == ["labb"]


async def test_what_is_wrong_stands_beside_its_field(server, drive) -> None:
    async with drive(server.profile, start="quotas", size=(120, 40)) as tui:
        await tui.press("a")
        await tui.shows("add: a quota")
        await tui.press(
            *"nobody", "down", "down", "down", "ctrl+u", *"URGENT", "down", *"x", "ctrl+s"
        )
        await tui.shows("✗ 'URGENT' is not a priority", "✗ 'x' must be an integer")
        await tui.press("ctrl+u", *"HIGH", "down", "ctrl+u", *"3", "ctrl+s")
        await tui.shows("nobody")
        assert "add: a quota" in tui.screen()
        await tui.press("escape")
        await tui.shows("0 in all")


async def test_violations_of_the_server_stand_beside_their_fields(server, drive) -> None:
    async with drive(server.profile, start="users", size=(120, 40)) as tui:
        await tui.shows("1 in all")
        await tui.press("a")
        await tui.shows("add: a user")
        await tui.press(*"Not A Name", "ctrl+s")
        await tui.shows("✗ ", "add: a user")
        lines = tui.screen().splitlines()
        field = next(at for at, line in enumerate(lines) if line.split()[1:2] == ["name"])
        assert "✗ 'Not A Name' must be" in lines[field + 1]


async def test_the_secret_of_a_token_is_shown_once(server, drive, client) -> None:
    async with drive(server.profile, start="tokens", size=(120, 30)) as tui:
        await tui.shows(" in all")
        before = len(await client.users.tokens())
        await tui.press("a")
        await tui.shows("add: a token")
        await tui.press(*"for a robot", "ctrl+s")
        await tui.shows("It is shown only now")
        await tui.press("escape")
        await tui.shows("for a robot", f"{before + 1} in all")
        assert "shown only now" not in tui.screen()


async def test_webhooks_are_set_tested_and_deleted(server, drive, client) -> None:
    async with drive(server.profile, start="webhooks", size=(140, 30)) as tui:
        await tui.shows("0 in all")
        await tui.press("a")
        await tui.shows("add: a webhook", "of started, suspended, ended, failed")
        await tui.press(*"phone", "enter", *"https://elsewhere.example", "ctrl+s")
        await tui.shows("may not send requests to https://elsewhere.example")
        await tui.press("ctrl+u", *"http://127.0.0.1:1/x", "ctrl+s")
        await tui.shows("Requests are signed with this secret", "whsec_")
        await tui.press("escape")
        await tui.shows("1 in all", "http://127.0.0.1:1")
        await tui.press("t")
        await tui.shows("did not take it: it cannot be reached")
        await tui.press("escape", "e")
        await tui.shows("edit: phone")
        await tui.press("down", "ctrl+u", *"ended, started", "ctrl+s")
        await tui.shows("done · edit: phone", "started,ended")
        await tui.press("ctrl+d")
        await tui.shows("delete")
        await tui.press("y")
        await tui.shows("0 in all")
        assert list(await client.webhooks.list()) == []


async def test_what_the_role_forbids_says_which_right_is_missing(drive, user) -> None:
    async with drive(user, start="quotas", size=(160, 30)) as tui:
        await tui.shows("ada (user)", "0 in all")
        await tui.press("a")
        await tui.shows("add needs the right manage_quotas")
        tui.app.goto("messages")
        await tui.shows("› messages")
        await tui.press("a")
        await tui.shows("send is for the role operator and above")


async def test_a_list_that_may_not_be_read_says_so(drive, user) -> None:
    async with drive(user, start="users", size=(120, 30)) as tui:
        await tui.shows("refuse")


async def test_a_policy_is_previewed_and_set(server, drive, client) -> None:
    async with drive(server.profile, start="groups", size=(120, 50)) as tui:
        await tui.shows("default", "1 in all")
        await tui.press("v")
        await tui.shows("preview a policy: default", "staying")
        await tui.press("down", "down", "down", "down", "ctrl+u", *"3", "ctrl+s")
        await tui.shows("the next scheduling pass would decide the same", "nothing was changed")
        await tui.press("escape", "e")
        await tui.shows("edit: default")
        await tui.press("down", "down", "down", "down", "ctrl+u", *"3", "ctrl+s")
        await tui.shows("done · edit: default")
        (group,) = await client.nodes.groups()
        assert group.policy.staying == 3


async def test_a_list_is_filtered_and_an_item_is_told_of(server, drive, client) -> None:
    for nodes, group in ((2, "default"), (3, "big")):
        await client.users.set_quota(Quota(subject="admin", group=group, priority=-1, nodes=nodes))
    async with drive(server.profile, start="quotas big", size=(120, 30)) as tui:
        await tui.shows("1 of 2 with 'big'")
        await tui.press("enter")
        await tui.shows("subject: admin", "nodes: 3")
        await tui.press("escape", "/", "ctrl+u", "enter")
        await tui.shows("2 in all")


async def test_in_chinese(server, drive, monkeypatch) -> None:
    monkeypatch.setenv("HAI_LANG", "zh")
    async with drive(server.profile, start="quotas", size=(120, 40)) as tui:
        await tui.shows("配额", "共 0 项")
        await tui.press("a")
        await tui.shows("新建", "节点分组", "优先级")


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        pytest.param({"n": "3", "f": "yes", "c": "b"}, [], id="all well"),
        pytest.param({}, [], id="nothing typed"),
        pytest.param({"n": "x", "f": "maybe", "c": "z"}, ["c", "f", "n"], id="all wrong"),
        pytest.param({"n": "--3"}, ["n"], id="two signs"),
        pytest.param({"n": "2147483648"}, ["n"], id="more than the contract carries"),
        pytest.param({"n": "-" + "9" * 5000}, ["n"], id="more than Python reads"),
    ],
)
def test_answers_note_all_that_is_wrong(values: dict[str, str], wrong: list[str]) -> None:
    answers = Answers(values)
    answers.number("n")
    answers.flag("f")
    answers.choice("c", ("a", "b"))
    assert sorted(answers.errors) == wrong


async def test_what_the_server_refuses_stands_in_the_place_of_the_list(
    server, drive, client
) -> None:
    await client.users.create(User(name="ada", role=ROLE_USER, active=True))
    token = await client.users.create_token(user="ada")
    profile = Profile("ada", server.profile.server, token.secret)
    async with drive(profile, start="users", size=(60, 24)) as tui:
        await tui.shows(
            "the server refuses: ListUsers is for the role", "manage_users; ada is USER"
        )
        assert "loading" not in tui.screen()
