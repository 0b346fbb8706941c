"""Refused sign-ins are recorded in the audit, many of them in few rows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from grpc import aio

from hai_backend.api.assemble import build_call_guard, build_services
from hai_backend.api.audit import refused_logins
from hai_backend.api.audit.refused_logins import RefusedLogins, describe_refusals, host_of
from hai_backend.api.audit.rows import Action
from hai_backend.api.server.server import collect_handlers
from hai_backend.domain.errors import Unavailable
from hai_backend.store.base import AuditQuery, AuditRow
from hai_backend.testing import ManualClock


async def test_first_refusal_is_recorded_at_once_and_all_others_are_counted() -> None:
    rows: list[AuditRow] = []
    recorded = asyncio.Event()

    async def record(new: Sequence[AuditRow]) -> None:
        rows.extend(new)
        recorded.set()

    refused = RefusedLogins(record, ManualClock(), Action.BROWSER_LOGIN, "PERMISSION_DENIED")
    refused.add("10.0.0.3")
    await recorded.wait()
    for number in range(10_000):
        refused.add(f"10.1.{number // 250}.{number % 250}")
    refused.add("10.1.0.0")
    await refused.close()
    assert [row.what for row in rows] == [
        "refused 1 time: 10.0.0.3 (1)",
        "refused 10001 times: other addresses (9900), 10.1.0.0 (2), 10.1.0.1 (1), 10.1.0.2 (1), "
        "10.1.0.3 (1), others (96)",
    ]
    assert {(row.actor, row.method, row.code) for row in rows} == {
        ("unknown", Action.BROWSER_LOGIN, "PERMISSION_DENIED")
    }


async def test_window_ends_without_further_refusals() -> None:
    rows: asyncio.Queue[AuditRow] = asyncio.Queue()

    async def record(new: Sequence[AuditRow]) -> None:
        for row in new:
            rows.put_nowait(row)

    refused = RefusedLogins(
        record, ManualClock(), Action.AUTHENTICATE, "UNAUTHENTICATED", window_seconds=0.001
    )
    for _ in range(3):
        refused.add("::1")
        assert (await rows.get()).what == "refused 1 time: ::1 (1)"
    await refused.close()
    assert rows.empty()


async def test_stalled_store_does_not_delay_the_shutdown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refused_logins, "_CLOSE_SECONDS", 0.01)
    called = asyncio.Event()

    async def record(new: Sequence[AuditRow]) -> None:
        called.set()
        await asyncio.Event().wait()

    refused = RefusedLogins(record, ManualClock(), Action.AUTHENTICATE, "UNAUTHENTICATED")
    refused.add("::1")
    await called.wait()
    await asyncio.wait_for(refused.close(), 5)


def test_refusals_of_one_address_are_described() -> None:
    assert describe_refusals(Counter({"10.0.0.3": 2})) == "refused 2 times: 10.0.0.3 (2)"


@pytest.mark.parametrize(
    ("peer", "host"),
    [("ipv4:10.0.0.3:50123", "10.0.0.3"), ("ipv6:%5B::1%5D:50123", "::1"), ("unix:", "unix")],
)
def test_host_of_a_peer(peer: str, host: str) -> None:
    assert host_of(peer) == host


async def test_calls_without_a_valid_token_are_recorded_and_the_token_is_not(platform: Any) -> None:
    guard, server = build_call_guard(platform.api_deps()), aio.server()
    service = collect_handlers(build_services(platform.api_deps()))
    method = "/hai.v1.UserService/WhoAmI"
    server.add_registered_method_handlers(
        "hai.v1.UserService", {"WhoAmI": guard.wrap_handler(method, service[method])}
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for _ in range(20):
            with pytest.raises(aio.AioRpcError):
                await channel.unary_unary(method)(
                    b"", metadata=(("authorization", "Bearer hai_almostright"),), timeout=10
                )
    await server.stop(0)
    await guard.close(Unavailable("closed by the test"), 0)
    rows = (await platform.store.audit(AuditQuery(method="Authenticate", page_size=100))).rows
    assert {(row.actor, row.code) for row in rows} == {("unknown", "UNAUTHENTICATED")}
    assert sum(int(row.what.split()[1]) for row in rows) == 20
    assert "almostright" not in repr(rows)
