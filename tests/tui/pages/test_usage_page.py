"""Charts of usage over time: the tab of a task, the cluster's page, and the drawing functions."""

from __future__ import annotations

from hai.client.errors import NotFound
from hai.client.fake.server import FakeClient
from hai.client.profile import Profile
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai_tui.demo_cluster.cluster import demo, training
from hai_tui.formatting.charts import mean, most, spark, spread
from hai_tui.style.theme import TONES
from hai_tui.usage import chart_text
from hai_tui.widgets.usage_view import UsageView

PLAIN = dict.fromkeys(TONES, "")


def test_steps_that_nobody_measured_stay_blank() -> None:
    values = spread([(60, 1.0), (180, 3.0), (999, 9.0)], start=60, end=300, step=60)
    assert list(values) == [1.0, None, 3.0, None]
    assert spark(values, 4.0) == "▃ ▇ "
    assert (mean(values), most(values)) == (2.0, 3.0)
    assert (mean([None]), most([])) == (None, None)
    assert spark([0.0, 5.0], 0.0) == "▁▁"


async def test_each_rank_has_its_charts_and_those_left_out_are_counted() -> None:
    client = FakeClient(nodes=["n0"])
    spec = TaskSpec(
        version=2,
        name="t",
        spec=ProgramSpec(entrypoint="a.py"),
        resource=ResourceSpec(node_count=1),
    )
    task = await client.tasks.create(spec)
    client.start(task.id, ["n0"])
    client.measure(task.id, cpus=2.0, cpus_max=4.0, memory_bytes=1 << 30, memory_bytes_max=1 << 30)
    answer = await client.usage.of_task(task.id)
    page = chart_text.of_task([answer], 10, PLAIN).plain  # type: ignore[arg-type]
    assert "rank 0, run 1" in page
    assert "CPUs: last 2, mean 2, max 4" in page
    assert "memory: last 1 GiB" in page
    assert "GPU" not in page
    together = await client.usage.of_task(task.id, sum=True)
    page = chart_text.of_task([together, answer], 10, PLAIN).plain  # type: ignore[arg-type]
    assert page.index("all ranks together") < page.index("CPUs: last 2") < page.index("rank 0")
    nothing = await client.usage.of_task(task.id, ranks=[7])
    assert chart_text.of_task([nothing], 10, PLAIN).plain == "nothing was measured in that time"  # type: ignore[arg-type]


async def test_every_rank_of_a_large_task_can_be_looked_at(drive) -> None:
    client = await demo()
    task = await client.tasks.create(training("wide", 20, 50))
    nodes = [f"big-{n:02}" for n in range(20)]
    for node in nodes:
        client.add_node(node, "train")
    client.start(task.id, nodes)
    for rank in range(20):
        client.measure(task.id, rank=rank, cpus=float(rank), cpus_max=float(rank))
    profile = Profile("lab", "example:1", "t")
    async with drive(
        profile, size=(100, 130), start=f"task {task.id} usage", connect=lambda profile: client
    ) as tui:
        await tui.shows("ranks 0 to 7 of 20", "all ranks together", "CPUs: last 190", "rank 7, run")
        await tui.press("]")
        await tui.shows("ranks 8 to 15 of 20", "rank 8, run 1")
        await tui.press("]", "]")
        await tui.shows("ranks 16 to 19 of 20", "rank 19, run 1")
        await tui.press("[")
        await tui.shows("rank 8, run 1")


async def test_the_page_of_the_cluster_goes_further_back(server, drive) -> None:
    await server.app.leader.usage.write()
    async with drive(server.profile, size=(100, 30), start="usage") as tui:
        await tui.shows("busy nodes: last 0", "of 2", "waiting tasks", "[3h]")
        await tui.press("+")
        await tui.shows("[1d]")
        await tui.press("-", "-")
        await tui.shows("[1h]")


async def test_a_tab_of_a_task_says_when_nothing_was_measured(server, drive, submit) -> None:
    await submit("short", "true")
    async with drive(server.profile, size=(100, 30), start="task 1 usage") as tui:
        await tui.shows("[usage]", "nothing was measured in that time")


async def test_what_was_done_is_a_list(server, drive, client) -> None:
    await client.nodes.cordon("node1", "fan")
    async with drive(server.profile, size=(120, 30), start="audit") as tui:
        await tui.shows("CordonNode", "admin", "1 in all")


async def test_what_can_not_be_shown_is_told_once_and_not_over_other_pages(
    server, drive, monkeypatch
) -> None:
    monkeypatch.setattr("hai_tui.widgets.usage_view._REFRESH_SECONDS", 0.05)
    async with drive(server.profile, start="usage") as tui:
        await tui.shows("● live")
        view, told, asked = tui.app.screen.query_one(UsageView), [], []

        async def ask(points: int) -> None:
            asked.append(points)
            raise NotFound("there is no group 'nosuch'")

        view._on_error, view._load = told.append, ask
        await tui.until(lambda: len(asked) > 3)
        assert len(told) == 1
        tui.app.goto("quotas")
        await tui.shows("› quotas", " in all")
        before = len(asked)
        await tui.pilot.pause(0.3)
        assert (len(asked), len(told)) == (before, 1)
