"""Tests of `hai container`, `hai shell` and `hai port-forward` with a cluster in memory."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from hai.client.fake.server import FakeClient
from hai.v1.task_pb2 import TASK_OUTCOME_FAILED
from hai_tui.cli.commands.catalog.container_services import service_line_pattern
from hai_tui.cli.tunnels import forwarding


def create(hai: Any, *options: str) -> Any:
    return hai("container", "create", *options)


def spec_of(fake: FakeClient, id: int) -> Any:
    return fake.world.tasks[id].spec


def test_a_container_is_a_task_of_its_own_kind(hai: Any, fake: FakeClient) -> None:
    done = create(
        hai, "nlp", "--idle-timeout", "2h", "--lifetime", "12h", "--grace", "1m", "-e", "A=b"
    )
    assert (done.code, done.out) == (0, "submitted task 4 (nlp)\n")
    assert "hai container open 4" in done.err
    spec = spec_of(fake, 4)
    assert (spec.task_type, [s.name for s in spec.services]) == ("jupyter", ["jupyter"])
    assert (spec.options.idle_timeout, spec.options.lifetime, spec.options.save_within) == (
        7200,
        43200,
        62,
    )
    assert dict(spec.spec.environments) == {"A": "b"}
    assert not spec.resource.is_spot


@pytest.mark.parametrize(
    ("options", "packed", "share"),
    [
        pytest.param((), False, (0, 0, 0), id="whole nodes"),
        pytest.param((), True, (0, 2, 4), id="shared nodes"),
        pytest.param(("--gpu", "1"), True, (1, 2, 4), id="a GPU"),
        pytest.param(("--kind", "shared", "--memory", "8"), True, (0, 2, 8), id="shared on demand"),
        pytest.param(("--kind", "dedicated"), True, (0, 0, 0), id="dedicated"),
        pytest.param(("--kind", "spot"), True, (0, 0, 0), id="spot"),
    ],
)
def test_each_kind_asks_for_its_share_of_a_node(
    hai: Any, fake: FakeClient, options: tuple[str, ...], packed: bool, share: Any
) -> None:
    if packed:
        fake.world.packed.add("default")
    assert create(hai, *options).code == 0
    resource = spec_of(fake, 4).resource
    assert (resource.gpu, resource.cpu, resource.memory) == share
    assert resource.is_spot == ("spot" in options)


@pytest.mark.parametrize(
    "options", [("--memory", "1"), ("--kind", "shared"), ("-g", "default#a", "--cpu", "2")]
)
def test_a_share_of_nodes_that_are_given_whole_is_refused(
    hai: Any, options: tuple[str, ...]
) -> None:
    done = create(hai, *options)
    assert done.code == 2
    assert "nodes of group default are given whole" in done.err
    assert "resource." not in done.err  # nobody has named such fields


def test_a_whole_node_may_need_gpus(hai: Any, fake: FakeClient) -> None:
    assert create(hai, "--gpu", "2").code == 0
    resource = fake.world.tasks[4].spec.resource
    assert (resource.gpu, resource.cpu, resource.memory) == (2, 0, 0)
    assert "dedicated" in hai("container", "list").out


def test_a_container_that_does_not_run_says_why(hai: Any, fake: FakeClient) -> None:
    create(hai, "lab")
    assert "WAITING_INIT" in hai("container", "show", "lab").err
    fake.start(4, ["n1"])
    assert "container 4 is" not in hai("container", "show", "lab").err
    fake.finish(4, TASK_OUTCOME_FAILED, "the workspace /gone is no directory")
    done = hai("container", "show", "4")
    assert "container 4 is FAILED: the workspace /gone is no directory" in done.err
    machine = hai("container", "show", "4", "--json")
    assert "is FAILED" not in machine.err
    told = json.loads(machine.out)
    assert (told["status"], told["why"]) == ("FAILED", "the workspace /gone is no directory")


def test_a_dedicated_container_has_no_share(hai: Any) -> None:
    done = create(hai, "--kind", "dedicated", "--gpu", "1")
    assert done.code == 2
    assert "leave gpu" in done.err


def test_lists_and_life(hai: Any, fake: FakeClient) -> None:
    create(hai, "lab")
    assert hai("container", "list", "-q").out == "4\n"
    assert "STATUS" in hai("container", "list").out
    fake.start(4, ["n1"])
    assert "READY" in hai("container", "show", "lab").out
    told = json.loads(hai("container", "show", "lab", "--json").out)
    assert told["services"][0]["state"] == "READY"
    assert hai("container", "open", "lab").out == "http://t4.localhost:8080/.hai/login?key=once\n"
    assert "STOPPED" in hai("container", "stop", "lab", "--service", "jupyter").out
    assert "READY" in hai("container", "restart", "lab").out
    assert "is stopped" in hai("container", "stop", "lab").err
    assert fake.world.tasks[4].held
    assert "starts when it is its turn" in hai("container", "start", "lab").err
    assert hai("container", "delete", "lab").code == 2  # nobody could be asked
    assert "is deleted" in hai("container", "delete", "lab", "--yes").err
    assert hai("container", "list").err.startswith("no dev containers")


def test_logs_of_services(hai: Any, fake: FakeClient) -> None:
    create(hai, "lab")
    fake.start(4, ["n1"])
    for line in ("own line", "[jupyter] ready", "[other] x"):
        fake.print(4, line)
    assert hai("container", "logs", "lab").out == "[jupyter] ready\n"
    assert hai("container", "logs", "lab", "nope").code == 2


def test_lines_of_services() -> None:
    assert service_line_pattern(["a.b"], "").search("[a.b] x")
    assert not service_line_pattern(["a.b"], "").search("[axb] x")
    assert not service_line_pattern(["a"], "").search("see [a] x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("6006", forwarding.Forward(6006, 6006), id="same port"),
        pytest.param("8000:6006", forwarding.Forward(8000, 6006), id="another port"),
        pytest.param("0:6006", forwarding.Forward(0, 6006), id="a free port"),
        pytest.param("jupyter", forwarding.Forward(0, service="jupyter"), id="service"),
        pytest.param("8888:jupyter", forwarding.Forward(8888, service="jupyter"), id="both"),
    ],
)
def test_ports_on_the_command_line(text: str, expected: forwarding.Forward) -> None:
    assert forwarding.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", "x:", "70000", "0", "1:0", "1:2:3", "Jupyter", "-1", "8000:a_b"]
)
def test_what_is_no_port(hai: Any, text: str) -> None:
    done = hai("port-forward", "1", "--", text)
    assert done.code == 2, done


async def test_a_forwarded_port_carries_bytes_both_ways(fake: FakeClient) -> None:
    """The tunnels of the fake server echo what they receive."""
    heard: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(
        forwarding.forward_ports(
            fake,
            1,
            0,
            "127.0.0.1",
            [forwarding.Forward(0, 22)],
            lambda forward, port: heard.set_result(port),
            lambda error: None,
        )
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", await heard)
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"hello"
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    serving.cancel()


def test_a_tunnel_into_a_task_that_waits_is_refused(hai: Any) -> None:
    done = hai("shell", "2", "--no-tty", "--", "true")
    assert done.code == 1
    assert "is not running" in done.err
    assert hai("port-forward", "3", "22").code == 1  # it is finished
    assert hai("port-forward", "1", "22", "-r", "9").code == 2
    assert "task 1 has no service nope; it has: none" in hai("port-forward", "1", "nope").err
