"""Only an answered heartbeat moves the deadline of a lease, and only before the lease has expired."""

from __future__ import annotations

import os
from math import inf

import pytest

from hai_backend.agent.lease import Expired, Lease, boot_seconds


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_lease_begins_when_it_is_made(clock: Clock) -> None:
    lease = Lease(10.0, clock)
    assert (lease.deadline, lease.remaining, lease.expired) == (1_010.0, 10.0, False)
    clock.now += 10.0
    assert lease.expired


def test_a_renewal_counts_from_when_the_heartbeat_was_sent(clock: Clock) -> None:
    lease = Lease(10.0, clock)
    clock.now += 8.0
    lease.renew(1_003.0)
    assert lease.deadline == 1_013.0


def test_an_older_answer_that_arrives_later_shortens_nothing(clock: Clock) -> None:
    lease = Lease(10.0, clock)
    lease.renew(1_005.0)
    lease.renew(1_002.0)
    assert lease.deadline == 1_015.0


@pytest.mark.parametrize("late", [0.0, 0.1, 1_000.0])
def test_what_has_expired_cannot_be_renewed(clock: Clock, late: float) -> None:
    lease = Lease(10.0, clock)
    clock.now += 10.0 + late
    with pytest.raises(Expired):
        lease.renew(clock.now)
    assert lease.expired


def test_a_released_lease_never_expires(clock: Clock) -> None:
    lease = Lease(10.0, clock)
    lease.release()
    clock.now += 1e9
    assert not lease.expired
    lease.renew(1_000.0)
    assert lease.deadline == inf


def test_without_a_fence_it_never_expires(clock: Clock) -> None:
    lease = Lease(inf, clock)
    clock.now += 1e9
    assert not lease.expired


def test_a_forked_process_sees_each_renewal() -> None:
    lease = Lease(10.0)
    asked, answer = os.pipe()
    sent_at = boot_seconds() + 5.0
    if (pid := os.fork()) == 0:
        lease.renew(sent_at)
        os.write(answer, b".")
        os._exit(0)
    os.read(asked, 1)
    os.waitpid(pid, 0)
    os.close(asked)
    os.close(answer)
    assert lease.deadline == sent_at + 10.0
