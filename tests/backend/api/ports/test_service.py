"""Reserved ports of the nodes: limits, free numbers, and restarts."""

from __future__ import annotations

from typing import Any

import grpc

from hai.v1 import port_service_pb2 as pb
from hai.v1.port_pb2 import Port
from hai_backend.api.ports.reservations import NodePorts
from hai_backend.domain.accounts.right import Grant
from hai_backend.domain.catalog.port import Port as StoredPort
from hai_backend.domain.catalog.port import ports_of_task

C = grpc.StatusCode


def creating(task: str, service: str = "ssh", **more: Any) -> pb.CreatePortRequest:
    return pb.CreatePortRequest(port=Port(task_name=task, service=service, **more))


async def numbers(caller: Any, user: str = "") -> list[int]:
    return [
        p.node_port for p in (await caller.ports.ListPorts(pb.ListPortsRequest(user=user))).ports
    ]


async def test_right_limits_the_number_of_ports(platform: Any, expect_refusal: Any) -> None:
    ada = await platform.caller("ada")
    for most in (0, 1, 2):
        if most:
            await platform.directory.grant(Grant("vision", True, f"ports:{most}"))
            await ada.ports.CreatePort(creating(f"t{most}"))
        async with expect_refusal() as why:
            await ada.ports.CreatePort(creating("one more"))
        assert (why[0].code, why[0].reason) == (C.RESOURCE_EXHAUSTED, "TOO_MANY_PORTS")
        assert f"ada has {most} ports, and {most} is the limit" in why[0].message
    assert await numbers(ada) == [30_000, 30_001]


async def test_released_number_is_reused(platform: Any) -> None:
    olga = await platform.caller("olga")
    for name in ("a", "b", "c"):
        await olga.ports.CreatePort(creating(name))
    await olga.ports.DeletePort(pb.DeletePortRequest(node_port=30_001))
    assert (await olga.ports.CreatePort(creating("d"))).node_port == 30_001


async def test_operators_choose_numbers_and_users(platform: Any, expect_refusal: Any) -> None:
    olga, ada = await platform.caller("olga"), await platform.caller("ada")
    await platform.directory.grant(Grant("ada", False, "ports:9"))
    await olga.ports.CreatePort(creating("t", user="ada", node_port=30_022))
    assert await numbers(ada) == await numbers(olga, "*") == [30_022]
    assert (await ada.ports.ListPorts(pb.ListPortsRequest())).ports[0].user == "ada"
    for mine in (creating("u", node_port=30_023), creating("u", user="bob")):
        async with expect_refusal() as why:
            await ada.ports.CreatePort(mine)
        assert why[0].code is C.PERMISSION_DENIED
    for number in (80, 40_000, -1):
        async with expect_refusal() as why:
            await olga.ports.CreatePort(creating("u", node_port=number))
        assert "from 30000 to 32767" in dict(why[0].violations)["port.node_port"]
    async with expect_refusal() as why:
        await olga.ports.CreatePort(creating("u", user="nobody"))
    assert why[0].code is C.NOT_FOUND


async def test_all_violations_are_reported_together(platform: Any, expect_refusal: Any) -> None:
    olga = await platform.caller("olga")
    async with expect_refusal() as why:
        await olga.ports.CreatePort(creating(" ", "SSH!"))
    assert set(dict(why[0].violations)) == {"port.task_name", "port.service"}


async def test_reservation_is_refused_if_no_number_is_free(
    platform: Any, expect_refusal: Any
) -> None:
    for number in range(30_000, 32_768):
        await platform.store.save_record(StoredPort(number, "eve", f"t{number}", "ssh"))
    olga = await platform.caller("olga")
    async with expect_refusal() as why:
        await olga.ports.CreatePort(creating("t"))
    assert why[0].code is C.RESOURCE_EXHAUSTED


async def test_port_belongs_to_the_task_name_and_stays(platform: Any) -> None:
    olga = await platform.caller("olga")
    await olga.ports.CreatePort(creating("t", user="ada"))
    await olga.ports.CreatePort(creating("t", "web", user="ada"))
    await olga.ports.CreatePort(creating("t", user="bob"))
    again = NodePorts(platform.store, platform.directory, platform.clock, range(30_000, 32_768))
    reserved = await again.list_for("*")
    assert ports_of_task(reserved, "ada", "t") == {"ssh": 30_000, "web": 30_001}
    assert ports_of_task(reserved, "ada", "u") == {}
