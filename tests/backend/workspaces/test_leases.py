"""One client at a time writes a workspace, for as long as it says that it is alive."""

from __future__ import annotations

import pytest

from hai_backend.domain.errors import Conflict
from hai_backend.workspaces.leases import LEASE_SECONDS, Leases

KEY = ("ada", "w")


def test_a_lease_is_held_until_it_runs_out() -> None:
    leases = Leases()
    leases.take(KEY, "laptop", 3, 0.0, force=False)
    with pytest.raises(
        Conflict, match=r"laptop writes this workspace \(heard of 20 s ago\)"
    ) as held:
        leases.take(KEY, "desktop", 3, 20.0, force=False)
    assert held.value.reason == "LEASE_HELD"
    assert leases.take(KEY, "desktop", 3, LEASE_SECONDS, force=False).holder == "desktop"


def test_renewing_keeps_it_and_may_be_late_as_long_as_nobody_took_it() -> None:
    leases = Leases()
    lease = leases.take(KEY, "laptop", 3, 0.0, force=False)
    assert leases.renew(KEY, lease.token, 100.0).expires_at == 100.0 + LEASE_SECONDS
    leases.take(KEY, "desktop", 3, 200.0, force=False)
    with pytest.raises(Conflict) as lost:
        leases.renew(KEY, lease.token, 201.0)
    assert lost.value.reason == "LEASE_LOST"


def test_only_its_holder_gives_it_back_and_nobody_else_sees_the_secret() -> None:
    leases = Leases()
    lease = leases.take(KEY, "laptop", 3, 0.0, force=False)
    leases.release(KEY, "guessed")
    shown = leases.of(KEY, 1.0)
    assert shown is not None
    assert (shown.holder, shown.token) == ("laptop", "")
    leases.release(KEY, lease.token)
    assert leases.of(KEY, 1.0) is None
    assert leases.of(("eve", "w"), 1.0) is None


def test_who_forces_it_takes_it() -> None:
    leases = Leases()
    old = leases.take(KEY, "laptop", 3, 0.0, force=False)
    new = leases.take(KEY, "desktop", 3, 1.0, force=True)
    with pytest.raises(Conflict):
        leases.renew(KEY, old.token, 2.0)
    assert leases.renew(KEY, new.token, 2.0).holder == "desktop"
