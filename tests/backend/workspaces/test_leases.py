"""One client at a time writes a workspace, for as long as it says that it is alive."""

from __future__ import annotations

import pytest

from hai_backend.domain.errors import Conflict
from hai_backend.workspaces.leases import LEASE_SECONDS, WorkspaceLeases

KEY = ("ada", "w")


def test_a_lease_is_held_until_it_runs_out() -> None:
    leases = WorkspaceLeases()
    leases.acquire(KEY, "laptop", 3, 0.0)
    with pytest.raises(
        Conflict, match=r"laptop is writing to this workspace \(last renewal 20 s ago\)"
    ) as error:
        leases.acquire(KEY, "desktop", 3, 20.0)
    assert error.value.reason == "LEASE_HELD"
    assert leases.acquire(KEY, "desktop", 3, LEASE_SECONDS).holder == "desktop"


def test_a_clock_that_goes_back_holds_nobody_up() -> None:
    leases = WorkspaceLeases()
    lease = leases.acquire(KEY, "laptop", 3, 5000.0)
    assert leases.get(KEY, 1000.0) is None
    leases.renew(KEY, lease.token, 1001.0)
    with pytest.raises(Conflict):
        leases.acquire(KEY, "desktop", 3, 1002.0)


def test_renewing_keeps_it_and_may_be_late_as_long_as_nobody_took_it() -> None:
    leases = WorkspaceLeases()
    lease = leases.acquire(KEY, "laptop", 3, 0.0)
    assert leases.renew(KEY, lease.token, 100.0).expires_at == 100.0 + LEASE_SECONDS
    leases.acquire(KEY, "desktop", 3, 200.0)
    with pytest.raises(Conflict) as lost:
        leases.renew(KEY, lease.token, 201.0)
    assert lost.value.reason == "LEASE_LOST"


def test_only_its_holder_gives_it_back_and_nobody_else_sees_the_secret() -> None:
    leases = WorkspaceLeases()
    lease = leases.acquire(KEY, "laptop", 3, 0.0)
    leases.release(KEY, "guessed")
    visible = leases.get(KEY, 1.0)
    assert visible is not None
    assert (visible.holder, visible.token) == ("laptop", "")
    leases.release(KEY, lease.token)
    assert leases.get(KEY, 1.0) is None
    assert leases.get(("eve", "w"), 1.0) is None


def test_who_forces_it_takes_it() -> None:
    leases = WorkspaceLeases()
    old = leases.acquire(KEY, "laptop", 3, 0.0)
    new = leases.acquire(KEY, "desktop", 3, 1.0, force=True)
    with pytest.raises(Conflict):
        leases.renew(KEY, old.token, 2.0)
    assert leases.renew(KEY, new.token, 2.0).holder == "desktop"


def test_a_client_takes_it_from_a_process_of_its_own_that_died() -> None:
    leases = WorkspaceLeases()
    dead = leases.acquire(KEY, "laptop pid 1", 3, 0.0, client_id="laptop:w")
    new = leases.acquire(KEY, "laptop pid 2", 3, 1.0, client_id="laptop:w")
    assert new.holder == "laptop pid 2"
    with pytest.raises(Conflict):
        leases.renew(KEY, dead.token, 2.0)
    visible = leases.get(KEY, 2.0)
    assert visible is not None
    assert visible.client_id == ""
    for other in ("desktop:w", ""):
        with pytest.raises(Conflict, match="laptop pid 2 is writing"):
            leases.acquire(KEY, "another", 3, 2.0, client_id=other)


def test_who_is_nobody_takes_it_from_nobody() -> None:
    leases = WorkspaceLeases()
    leases.acquire(KEY, "a script", 3, 0.0)
    with pytest.raises(Conflict):
        leases.acquire(KEY, "a script", 3, 1.0)
