"""The cluster's pages: layout and charts as functions; map, tree and node with a real server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai.client.text.state_style import StateStyle
from hai.v1.node_pb2 import NODE_STATE_NOT_READY, NODE_STATE_READY, Node, NodeTenant
from hai.v1.node_service_pb2 import WatchNodesResponse
from hai.v1.task_pb2 import Task
from hai.v1.usage_service_pb2 import NodeUsage
from hai_tui.cluster.layout import MapPosition, beside, cell_for, natural, position_of, rows_of
from hai_tui.cluster.model import CONDITION_STYLES, NodeModel, condition, per_hour
from hai_tui.cluster.tree import branches
from hai_tui.cluster.usage import node_style
from hai_tui.formatting.charts import area
from hai_tui.views.node_labels import parse_edited_labels


def node(name: str, *users: str, group: str = "default", zone: str = "", **more: object) -> Node:
    tenants = [NodeTenant(task_id=i, task_name="train", user=u) for i, u in enumerate(users, 1)]
    facts = {"state": NODE_STATE_READY, **more}
    return Node(name=name, group=group, zone=zone, tenants=tenants, **facts)  # type: ignore[arg-type]


def silent(which: Node) -> Node:
    """Return a copy of the node whose first agent is silent."""
    which.tenants[0].silent_since_time.seconds = 1_800_000_000
    return which


@pytest.mark.parametrize(
    ("which", "word"),
    [
        pytest.param(node("a"), "FREE", id="free"),
        pytest.param(node("a", "bob"), "HELD", id="held"),
        pytest.param(node("a", "bob", "eve"), "SHARED", id="shared"),
        pytest.param(node("a", "bob", "ada"), "MINE", id="mine"),
        pytest.param(silent(node("a", "ada", "bob")), "SILENT", id="an agent is silent"),
        pytest.param(silent(node("a", "ada", cordoned=True)), "LEAVING", id="silent and cordoned"),
        pytest.param(node("a", cordoned=True), "CORDONED", id="cordoned"),
        pytest.param(node("a", "ada", cordoned=True), "LEAVING", id="leaving"),
        pytest.param(node("a", "ada", state=NODE_STATE_NOT_READY), "NOT_READY", id="not ready"),
    ],
)
def test_one_word_for_a_node(which: Node, word: str) -> None:
    assert condition(which, "ada") == word


def test_no_two_conditions_look_the_same_without_colours() -> None:
    assert len({look.glyph for look in CONDITION_STYLES.values()}) == len(CONDITION_STYLES)


def test_nodes_stand_by_group_and_zone_in_natural_order() -> None:
    nodes = [node("n10"), node("n9"), node("x", group="big", zone="a"), node("y", group="big")]
    rows = rows_of(nodes, 40)
    shown = [row.title or " ".join(row.names) for row in rows]
    assert shown == ["big (1)", "y", "", "big#a (1)", "x", "", "default (2)", "n9 n10"]


@given(
    st.sets(st.text("abn01", min_size=1, max_size=4), min_size=1, max_size=30), st.integers(1, 20)
)
def test_arrows_stay_on_nodes_and_reach_all(names: set[str], width: int) -> None:
    rows = rows_of([node(name, zone=name[0]) for name in names], width)
    at, seen = position_of(rows, sorted(names, key=lambda n: (natural(n[0]), natural(n)))[0]), []
    assert at is not None
    for _ in names:
        seen.append(rows[at.row].names[at.cell])
        at = beside(rows, at, 0, 1)
    assert set(seen) == names
    for step in ((-1, 0), (1, 0), (-50, 0), (50, 0), (0, -1), (0, -500)):
        at = beside(rows, at, *step)
        assert rows[at.row].names[at.cell] in names


def test_names_are_shown_where_they_fit() -> None:
    nodes = [node(f"node{i}") for i in range(20)]
    assert cell_for(nodes, 40, 10) == len("node19") + 4
    assert cell_for(nodes, 40, 4) == 2


def test_up_and_down_keep_the_column_where_they_can() -> None:
    rows = rows_of([node(f"n{i}") for i in range(5)], 6)
    assert beside(rows, MapPosition(1, 1), 1, 0) == MapPosition(2, 1)
    assert beside(rows, MapPosition(1, 2), 1, 0) == MapPosition(2, 1)


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        pytest.param([], ["⠀⠀", "⠀⠀"], id="nothing"),
        pytest.param([1, 1, 1, 1], ["⣿⣿", "⣿⣿"], id="full"),
        pytest.param([0.5], ["⠀⠀", "⠀⢸"], id="the newest at the right"),
        pytest.param([0.01, 0], ["⠀⠀", "⠀⡀"], id="little is not nothing"),
    ],
)
def test_a_chart_of_values_in_signs(values: list[float], lines: list[str]) -> None:
    assert area(values, 2, 2, 1.0) == lines


def test_old_news_of_a_node_change_nothing() -> None:
    model = NodeModel()
    model.apply(WatchNodesResponse(nodes=[node("a", "bob", version=5)], version=5))
    assert model.apply(WatchNodesResponse(nodes=[node("a", version=4)], version=5)) == set()
    assert model.counts()["HELD"] == 1
    model.sample(1.0)
    assert list(model.usage_samples) == [(1.0, 1.0)]


def test_tasks_are_counted_by_the_hour() -> None:
    tasks = [Task(), Task(), Task()]
    tasks[0].create_time.seconds = 100_000
    tasks[1].create_time.seconds = tasks[1].finish_time.seconds = 100_000 - 3601
    created, finished = per_hour(tasks, 100_000, 3)
    assert (created, finished) == ([0, 1, 1], [0, 1, 0])


def test_the_tree_has_every_node_once_and_who_is_on_it() -> None:
    lines = branches([node("b", "ada"), node("a", zone="z")], "", 0.0)
    assert [(line.depth, line.node, line.task) for line in lines] == [
        (0, "", 0),
        (1, "b", 0),
        (2, "b", 1),
        (1, "", 0),
        (2, "a", 0),
    ]


@pytest.mark.parametrize(
    "size", [pytest.param((80, 24), id="80x24"), pytest.param((200, 50), id="200x50")]
)
async def test_the_map_is_live(server, drive, submit, size) -> None:
    async with drive(server.profile, start="cluster", size=size) as tui:
        await tui.shows("2 nodes", "□ 2 free", "default (2)")
        await submit("train")
        await tui.shows("□ 1 free", "◆ 1 yours")
        await submit("wide", nodes=2, priority=10)
        await tui.shows("○ 1 waits")
        await tui.press("/", *"train", "enter")
        await tui.shows("1 train (admin) rank 0")


async def test_a_node_that_is_not_found_is_told(server, drive) -> None:
    async with drive(server.profile, start="cluster") as tui:
        await tui.shows("□ 2 free")
        await tui.press("/", *"nodeX", "enter")
        await tui.shows("no node has 'nodeX'")


async def test_a_node_is_taken_out_of_service_and_back(server, drive) -> None:
    async with drive(server.profile, start="cluster") as tui:
        await tui.shows("□ 2 free")
        await tui.press("x", *"fans", "enter")
        await tui.shows("takes no new work", "‖ 1 cordoned", "fans")
        await tui.press("x")
        await tui.shows("takes no work already")
        await tui.press("u")
        await tui.shows("□ 2 free")


@pytest.mark.parametrize(
    ("had", "line", "labels", "remove"),
    [
        pytest.param({}, "rack=r7, fabric=ib", {"rack": "r7", "fabric": "ib"}, [], id="new ones"),
        pytest.param({"rack": "r7"}, "rack=r8", {"rack": "r8"}, [], id="another value"),
        pytest.param({"rack": "r7", "old": ""}, "rack=r7", {}, ["old"], id="one is left out"),
        pytest.param({"rack": "r7", "old": ""}, "rack=r7 old", {}, [], id="nothing changed"),
        pytest.param({"rack": "r7"}, "rack=r7 old-", {}, ["old"], id="as kubectl removes"),
    ],
)
def test_what_was_done_to_a_line_of_labels(
    had: dict[str, str], line: str, labels: dict[str, str], remove: list[str]
) -> None:
    change = parse_edited_labels(node("a", labels=had), line)
    assert (change.labels, list(change.remove)) == (labels, remove)


@pytest.mark.parametrize(
    ("use", "cpus", "glyph", "tone"),
    [
        pytest.param(None, 8, "■", "busy", id="nothing measured"),
        pytest.param(NodeUsage(node="a", gpu_utilisation=0.0), 8, "▁", "bad", id="idle GPUs"),
        pytest.param(NodeUsage(node="a", gpu_utilisation=0.5), 8, "▅", "busy", id="half"),
        pytest.param(NodeUsage(node="a", gpu_utilisation=1.0), 8, "█", "good", id="all"),
        pytest.param(
            NodeUsage(node="a", cpus=6), 8, "▇", "good", id="CPUs where no GPU is measured"
        ),
        pytest.param(NodeUsage(node="a", cpus=99), 8, "█", "good", id="more than there are"),
        pytest.param(NodeUsage(node="a", cpus=6), 0, "■", "busy", id="of an unknown number"),
    ],
)
def test_a_sign_of_how_much_is_used(
    use: NodeUsage | None, cpus: int, glyph: str, tone: str
) -> None:
    uses = {} if use is None else {"a": use}
    assert node_style(node("a", "bob", cpus=cpus), "ada", uses) == StateStyle(glyph, tone)
    assert node_style(node("a", cpus=cpus), "ada", uses).glyph == "□"


async def test_labels_are_edited_and_found(server, drive, client) -> None:
    await client.nodes.label("node1", {"rack": "r7", "old": "x"})
    async with drive(server.profile, start="cluster", size=(120, 30)) as tui:
        await tui.shows("□ 2 free")
        await tui.press("/", *"rack=r7", "enter")
        await tui.shows("labels old=x rack=r7")
        await tui.press("L", *["backspace"] * len("old=x rack=r7"), *"rack=r8", "enter")
        await tui.shows("node1: labels: rack=r8")
        assert (await client.nodes.get("node1")).labels == {"rack": "r8"}
        await tui.press("L", *" a/b/c=d", "enter")
        await tui.shows("DNS name")


async def test_labels_in_the_list_of_nodes(server, drive) -> None:
    async with drive(server.profile, start="nodes node1", size=(160, 30)) as tui:
        await tui.shows("1 of 2")
        await tui.press("L", *"-rack=r7", "ctrl+s")
        await tui.shows("labels: node1", "1 to 63 letters")
        await tui.press("home", "delete", "ctrl+s", "w")
        await tui.shows("LABELS", "rack=r7")


async def test_a_drain_says_who_is_concerned_first(server, drive, submit, client) -> None:
    await submit("train")
    async with drive(server.profile, start="cluster") as tui:
        await tui.shows("◆ 1 yours")
        await tui.press("/", *"train", "enter", "D", *"repair", "enter")
        await tui.shows("It suspends 1 train (admin)")
        await tui.press("n")
        assert not any(n.cordoned for n in await client.nodes.list())
        await tui.press("D", *"repair", "enter")
        await tui.shows("It suspends")
        await tui.press("y")
        await tui.shows("asked to leave")


async def test_the_tree_leads_to_nodes_and_tasks(server, drive, submit) -> None:
    await submit("train")
    async with drive(server.profile, start="cluster") as tui:
        await tui.shows("◆ 1 yours")
        await tui.press("v")
        await tui.shows("◆", "yours", "1 train (admin)  rank 0")
        await tui.press("/", *"train", "enter", "enter")
        await tui.shows("› node ", "waiting for nodes of this group")


async def test_a_node_says_who_is_on_it_and_who_waits(server, drive, submit, client) -> None:
    await submit("train", nodes=2)
    await client.tasks.wait(1, "running", timeout=30)
    await submit("next")
    name = (await client.nodes.list())[0].name
    async with drive(server.profile, start=f"node {name}", size=(120, 30)) as tui:
        await tui.shows(name, "1 train (admin) rank", "next", "1 task waits in default")
        await tui.shows("the first that one node is enough for: 2 next")
        await tui.press("enter")
        await tui.shows("› task 2")


@pytest.mark.parametrize(
    ("page", "before", "after"),
    [
        pytest.param("node {}", "0 tasks wait in default", "1 task waits in default", id="a node"),
        pytest.param("queue", "no task waits", "1 in all", id="the queue"),
    ],
)
async def test_a_page_asks_nothing_while_another_lies_over_it(
    server, drive, submit, client, monkeypatch, page, before, after
) -> None:
    monkeypatch.setattr("hai_tui.screens.resource._RELOAD_SECONDS", 0.0)
    start = page.format((await client.nodes.list())[0].name)
    async with drive(server.profile, start=start, size=(120, 30)) as tui:
        await tui.shows(before)
        tasks_client, asked = (await tui.app.session.client()).tasks, []
        queue = tasks_client.queue
        monkeypatch.setattr(
            tasks_client, "queue", lambda group="": asked.append(group) or queue(group)
        )
        await tui.press(":", *"tasks", "enter")
        await submit("holds", nodes=2)
        await submit("late")
        await tui.shows("holds", "late")
        assert asked == []
        await tui.press("escape")
        await tui.shows(after, "late")
        assert asked


async def test_a_user_learns_which_right_is_missing(server, drive, client) -> None:
    from hai.client.profile import Profile
    from hai.v1.user_pb2 import ROLE_USER, User

    await client.users.create(User(name="ada", role=ROLE_USER, active=True, groups=["lab"]))
    token = await client.users.create_token(user="ada")
    profile = Profile("ada", server.profile.server, token.secret)
    async with drive(profile, start="cluster", size=(160, 30)) as tui:
        await tui.shows("ada (user)", "□ 2 free")
        await tui.press("D")
        await tui.shows("drain needs the right manage_nodes")


async def test_the_queue_is_live_and_in_order(server, drive, submit) -> None:
    await submit("holds", nodes=2)
    async with drive(server.profile, start="queue", size=(120, 30)) as tui:
        await submit("normal", nodes=2)
        await submit("urgent", nodes=2, priority=10)
        await tui.shows("normal", "urgent", "2 in all")
        await tui.press("enter")
        await tui.shows("› task 2")
