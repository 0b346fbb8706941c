"""One client at a time may write a workspace, as long as it renews its lease."""

from __future__ import annotations

import pytest

from hai_backend.domain.errors import Conflict
from hai_backend.workspaces.leases import LEASE_SECONDS, WorkspaceLeases

KEY = ("ada", "w")


def test_a_lease_is_held_until_it_expires() -> None:
    leases = WorkspaceLeases()
    leases.acquire(KEY, "laptop", 3, 0.0)
    with pytest.raises(
        Conflict, match=r"laptop is writing to this workspace \(last renewal 20 s ago\)"
    ) as error:
        leases.acquire(KEY, "desktop", 3, 20.0)
    assert error.value.reason == "LEASE_HELD"
    assert leases.acquire(KEY, "desktop", 3, LEASE_SECONDS).holder == "desktop"


def test_a_clock_that_goes_back_prolongs_no_lease() -> None:
    leases = WorkspaceLeases()
    lease = leases.acquire(KEY, "laptop", 3, 5000.0)
    assert leases.get(KEY, 1000.0) is None
    leases.renew(KEY, lease.token, 1001.0)
    with pytest.raises(Conflict):
        leases.acquire(KEY, "desktop", 3, 1002.0)


def test_an_expired_lease_can_be_renewed_if_nobody_acquired_it() -> None:
    leases = WorkspaceLeases()
    lease = leases.acquire(KEY, "laptop", 3, 0.0)
    assert leases.renew(KEY, lease.token, 100.0).expires_at == 100.0 + LEASE_SECONDS
    leases.acquire(KEY, "desktop", 3, 200.0)
    with pytest.raises(Conflict) as lost:
        leases.renew(KEY, lease.token, 201.0)
    assert lost.value.reason == "LEASE_LOST"


def test_only_the_holder_releases_a_lease_and_knows_its_secret() -> None:
    leases = WorkspaceLeases()
    lease = leases.acquire(KEY, "laptop", 3, 0.0)
    leases.release(KEY, "guessed")
    visible = leases.get(KEY, 1.0)
    assert visible is not None
    assert (visible.holder, visible.token) == ("laptop", "")
    leases.release(KEY, lease.token)
    assert leases.get(KEY, 1.0) is None
    assert leases.get(("eve", "w"), 1.0) is None


def test_a_lease_can_be_acquired_by_force() -> None:
    leases = WorkspaceLeases()
    old = leases.acquire(KEY, "laptop", 3, 0.0)
    new = leases.acquire(KEY, "desktop", 3, 1.0, force=True)
    with pytest.raises(Conflict):
        leases.renew(KEY, old.token, 2.0)
    assert leases.renew(KEY, new.token, 2.0).holder == "desktop"


def test_a_client_acquires_the_lease_of_its_own_dead_process() -> None:
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


def test_clients_without_an_id_do_not_take_leases_from_one_another() -> None:
    leases = WorkspaceLeases()
    leases.acquire(KEY, "a script", 3, 0.0)
    with pytest.raises(Conflict):
        leases.acquire(KEY, "a script", 3, 1.0)
