"""When a rank counts as terminated, and which actions follow. The tests pass the time as an argument."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.domain.node import Node, NodeState
from hai_backend.kube_cache.nodes import ObservedNode
from hai_backend.launch.base import (
    KillRequest,
    LaunchFailed,
    RankEvictionNotice,
    RankKey,
    RankTerminated,
)
from hai_backend.launch.kubernetes.nodes import Nodes, Timeouts
from hai_backend.launch.kubernetes.pod_failures import Cause, CauseKind
from hai_backend.launch.kubernetes.pods import ObservedPod
from hai_backend.launch.kubernetes.ranks import Action, DeleteOwner, DeletePod, Ranks, Report

KEY = RankKey(7, 1, 0)
TIMEOUTS = Timeouts(
    lost_after=10.0, fence_after=100.0, settle=5.0, transient_failure=20.0, forced_delete=6.0
)
WELL, SILENT = ObservedNode(Node("n1")), ObservedNode(Node("n1"), "not ready: silent")
POD = ObservedPod(KEY, "u1", "hai-7-1-0", "n1", False, True, True, False, None)
PENDING = replace(POD, has_address=False, started=False)
OVER = replace(POD, finished=True)
TERMINATED = [Report(RankTerminated(KEY)), DeleteOwner((7, 1))]
FORCED = Report(
    RankEvictionNotice(KEY, "somebody deleted its pod by force; its program may run on")
)


@pytest.fixture
def nodes() -> Nodes:
    return Nodes(TIMEOUTS)


@pytest.fixture
def ranks(nodes: Nodes) -> Ranks:
    made = Ranks(nodes, TIMEOUTS)
    made.nodes_changed([("n1", WELL)], 0.0)
    return made


def test_a_pod_that_is_over_is_a_rank_that_is_gone(ranks: Ranks) -> None:
    assert ranks.pod_changed("u1", POD, 1.0) == []
    assert ranks.keys() == {KEY}
    assert ranks.pod_changed("u1", OVER, 2.0) == TERMINATED
    assert ranks.keys() == frozenset()


def test_a_pod_that_we_ended_is_gone_when_its_kubelet_says_so(ranks: Ranks) -> None:
    ranks.pod_changed("u1", POD, 1.0)
    ranks.kill(KillRequest(KEY, "n1"), 1.0)
    assert ranks.pod_changed("u1", replace(OVER, deleting=True), 2.0) == TERMINATED
    assert ranks.pod_changed("u1", None, 2.0) == []


def test_the_last_word_counts_also_when_it_comes_late(ranks: Ranks) -> None:
    """The response to our request arrives before the change from the watch."""
    ranks.pod_changed("u1", POD, 1.0)
    ranks.kill(KillRequest(KEY, "n1"), 1.0)
    assert ranks.pod_missing(KEY, 2.0) == []
    assert ranks.pod_changed("u1", OVER, 3.0) == TERMINATED


def test_a_pod_that_we_ended_before_it_ran_and_that_vanishes_is_gone(ranks: Ranks) -> None:
    ranks.pod_changed("u1", PENDING, 1.0)
    ranks.kill(KillRequest(KEY, "n1"), 1.0)
    assert ranks.pod_changed("u1", None, 2.0) == TERMINATED


def test_a_pod_that_we_ended_and_whose_agent_was_heard_may_still_run(ranks: Ranks) -> None:
    ranks.pod_changed("u1", PENDING, 1.0)
    ranks.kill(KillRequest(KEY, "n1", ran=True), 1.0)
    assert ranks.pod_changed("u1", None, 2.0) == []
    assert ranks.due() == 8.0


def test_a_pod_that_nobody_asked_to_go_may_have_run_unheard(ranks: Ranks) -> None:
    """The watch showed only the creation of the pod."""
    ranks.pod_changed("u1", PENDING, 1.0)
    assert ranks.pod_changed("u1", None, 2.0) == [FORCED]
    assert ranks.due() == 8.0


@pytest.mark.parametrize(
    "killed", [pytest.param(True, id="we end it"), pytest.param(False, id="it runs")]
)
def test_a_pod_that_vanishes_without_a_last_word_may_still_run(ranks: Ranks, killed: bool) -> None:
    """A forced deletion: the object goes at once, its containers later."""
    ranks.pod_changed("u1", POD, 1.0)
    if killed:
        ranks.kill(KillRequest(KEY, "n1"), 1.0)
    assert ranks.pod_changed("u1", None, 2.0) == ([] if killed else [FORCED])
    assert ranks.kill(KillRequest(KEY, "n1"), 1.0) == []
    assert ranks.due() == 8.0
    assert ranks.tick(8.0) == TERMINATED


def test_of_a_vanished_pod_a_node_that_falls_silent_is_waited_for(ranks: Ranks) -> None:
    ranks.pod_changed("u1", POD, 1.0)
    ranks.pod_changed("u1", None, 2.0)
    ranks.nodes_changed([("n1", SILENT)], 7.0)
    assert ranks.kill(KillRequest(KEY, "n1"), 9.0) == []
    assert ranks.due() == 117.0


def test_the_run_is_cleaned_with_its_last_rank_and_not_while_it_is_being_made(ranks: Ranks) -> None:
    other = RankKey(7, 1, 1)
    ranks.creation_begun((7, 1), [(KEY, "n1"), (other, "n1")])
    ranks.pod_changed("u1", POD, 1.0)
    assert ranks.pod_changed("u1", OVER, 2.0) == [Report(RankTerminated(KEY))]
    assert ranks.creation_failed(other, "refused") == [Report(LaunchFailed(other, "refused"))]
    assert ranks.creation_finished((7, 1)) == [DeleteOwner((7, 1))]


def test_an_older_pod_of_the_same_name_does_not_count(ranks: Ranks) -> None:
    ranks.pod_changed("u1", POD, 1.0)
    ranks.pod_changed("u2", replace(POD, uid="u2"), 2.0)
    assert ranks.pod_changed("u1", None, 3.0) == []
    assert ranks.keys() == {KEY}


CAUSES = [
    pytest.param(Cause(CauseKind.TASK, "no image"), LaunchFailed(KEY, "no image"), id="the task's"),
    pytest.param(
        Cause(CauseKind.NODE, "no room"), LaunchFailed(KEY, "no room", True), id="the node's"
    ),
]


@pytest.mark.parametrize(("cause", "event"), CAUSES)
def test_what_cannot_start_is_ended_and_then_told(
    ranks: Ranks, cause: Cause, event: LaunchFailed
) -> None:
    assert ranks.pod_changed("u1", replace(PENDING, cause=cause), 1.0) == [DeletePod(KEY, "u1")]
    assert ranks.pod_changed("u1", None, 2.0) == [Report(event), DeleteOwner((7, 1))]


@pytest.mark.parametrize(("cause", "event"), CAUSES)
def test_what_a_node_refused_is_told_at_once(
    ranks: Ranks, cause: Cause, event: LaunchFailed
) -> None:
    refused = replace(PENDING, finished=True, cause=cause)
    assert ranks.pod_changed("u1", refused, 1.0) == [Report(event), DeleteOwner((7, 1))]


def test_a_node_that_refused_gets_nothing_for_a_while_and_longer_when_it_does_so_again(
    ranks: Ranks, nodes: Nodes
) -> None:
    refused = replace(PENDING, finished=True, cause=Cause(CauseKind.NODE, "no room (cpu)"))
    ranks.pod_changed("u1", refused, 1.0)
    ranks.pod_changed("u1", refused, 2.0)  # the same report again
    why = "refused a pod, so it gets none for a while: no room (cpu)"
    assert {node.name: node.held for node in nodes.now(60.9)} == {"n1": why}
    assert list(nodes.deadlines()) == [61.0]
    assert [node.held for node in nodes.now(61.0)] == [""]
    ranks.pod_changed("u2", replace(refused, uid="u2"), 70.0)
    again = why.replace("a pod,", "a pod, 2 times in a row,")
    assert [[node.held for node in nodes.now(at)] for at in (189.9, 190.0)] == [[again], [""]]
    ranks.pod_changed("u3", replace(POD, uid="u3"), 200.0)
    ranks.pod_changed("u4", replace(refused, uid="u4", key=replace(KEY, rank=1)), 201.0)
    assert [node.held for node in nodes.now(202.0)] == [why]


def test_what_only_this_task_cannot_have_says_nothing_of_the_node(
    ranks: Ranks, nodes: Nodes
) -> None:
    refused = replace(
        PENDING, finished=True, cause=Cause(CauseKind.TASK_ON_NODE, "its port is in use")
    )
    assert ranks.pod_changed("u1", refused, 1.0)[0] == Report(
        LaunchFailed(KEY, "its port is in use")
    )
    assert [node.held for node in nodes.now(2.0)] == [""]


def test_what_may_pass_counts_when_it_lasts(ranks: Ranks) -> None:
    slow = replace(PENDING, cause=Cause(CauseKind.TRANSIENT, "slow registry"))
    assert ranks.pod_changed("u1", slow, 1.0) == []
    assert ranks.due() == 21.0
    assert ranks.tick(20.0) == []
    assert ranks.tick(21.0) == [DeletePod(KEY, "u1")]


def test_what_has_passed_counts_no_more(ranks: Ranks) -> None:
    ranks.pod_changed("u1", PENDING, 1.0)
    ranks.pod_warned("u1", Cause(CauseKind.TRANSIENT, "no volume"), 2.0)
    assert ranks.due() == 22.0
    ranks.pod_changed("u1", POD, 3.0)
    assert ranks.due() == math.inf


def test_why_something_else_ended_it_is_told(ranks: Ranks) -> None:
    ranks.pod_changed("u1", POD, 1.0)
    done = ranks.pod_changed(
        "u1", replace(OVER, cause=Cause(CauseKind.TERMINATED, "too much memory")), 2.0
    )
    assert isinstance(done[0], Report)
    assert done[0].event == RankTerminated(KEY)
    assert isinstance(done[0].event, RankTerminated)
    assert done[0].event.why == "too much memory"


def test_a_deletion_by_somebody_is_told_once_and_ours_is_not(ranks: Ranks) -> None:
    leaving, other = replace(POD, deleting=True), RankKey(8, 1, 0)
    ranks.pod_changed("u1", POD, 1.0)
    why = "somebody deleted its pod"
    assert ranks.pod_changed("u1", leaving, 2.0) == [Report(RankEvictionNotice(KEY, why))]
    assert ranks.pod_changed("u1", leaving, 3.0) == []
    ranks.pod_changed("u2", replace(POD, key=other, uid="u2"), 3.0)
    ranks.kill(KillRequest(other, "n1"), 3.0)
    assert ranks.pod_changed("u2", replace(leaving, key=other, uid="u2"), 4.0) == []


# Fencing.


def test_a_death_on_a_silent_node_is_not_believed_before_the_fence(ranks: Ranks) -> None:
    ranks.pod_changed("u1", POD, 1.0)
    ranks.nodes_changed([("n1", SILENT)], 10.0)
    ranks.kill(KillRequest(KEY, "n1"), 15.0)
    assert ranks.pod_changed("u1", None, 20.0) == []
    assert ranks.due() == 120.0
    assert ranks.tick(119.0) == []
    assert ranks.tick(120.0) == TERMINATED


@pytest.mark.parametrize(
    "vanishes",
    [
        pytest.param(True, id="its pod was deleted by force"),
        pytest.param(False, id="its pod is there"),
    ],
)
def test_the_fence_counts_from_when_the_lease_was_renewed_for_the_last_time(
    ranks: Ranks, vanishes: bool
) -> None:
    """Its agent answers although its kubelet does not: until the run is to end, its lease is renewed."""
    ranks.pod_changed("u1", POD, 1.0)
    ranks.nodes_changed([("n1", SILENT)], 10.0)
    if vanishes:
        assert ranks.pod_changed("u1", None, 12.0) == [FORCED]
        assert ranks.due() == math.inf
    ranks.tick(500.0)
    ranks.kill(KillRequest(KEY, "n1"), 600.0)
    ranks.kill(KillRequest(KEY, "n1"), 610.0)
    assert ranks.due() == 700.0
    assert ranks.tick(700.0) == (TERMINATED if vanishes else [DeletePod(KEY, "u1", force=True)])


@pytest.mark.parametrize(
    ("known", "due"),
    [
        pytest.param(0.0, 114.0, id="an agent of an older version"),
        pytest.param(50.0, 114.0, id="the setting became longer"),
        pytest.param(300.0, 314.0, id="the setting became shorter"),
        pytest.param(math.inf, math.inf, id="the agent never ends by itself"),
    ],
)
def test_of_the_fence_that_its_agent_knows_and_the_setting_the_longer_counts(
    ranks: Ranks, known: float, due: float
) -> None:
    ranks.pod_changed("u1", replace(POD, fence_after=known), 1.0)
    ranks.nodes_changed([("n1", SILENT)], 4.0)
    ranks.kill(KillRequest(KEY, "n1"), 14.0)
    assert ranks.due() == due


def test_a_rank_that_never_ran_had_no_lease(ranks: Ranks) -> None:
    ranks.pod_changed("u1", PENDING, 1.0)
    ranks.nodes_changed([("n1", SILENT)], 10.0)
    ranks.kill(KillRequest(KEY, "n1"), 600.0)
    assert ranks.due() == 120.0


def test_where_the_agent_has_reported_the_end_nothing_is_waited_for(ranks: Ranks) -> None:
    ranks.pod_changed("u1", POD, 1.0)
    ranks.nodes_changed([("n1", SILENT)], 10.0)
    assert ranks.kill(KillRequest(KEY, "n1", exited=True), 20.0) == [
        DeletePod(KEY, "u1", force=True)
    ]
    assert ranks.kill(KillRequest(KEY, "n1", exited=True), 21.0) == []
    assert ranks.tick(30.0) == [DeletePod(KEY, "u1", force=True)]
    assert ranks.pod_changed("u1", None, 31.0) == TERMINATED


@pytest.mark.parametrize("node", [WELL, SILENT])
def test_a_pod_that_vanished_is_gone_when_its_agent_has_reported_the_end(
    ranks: Ranks, node: ObservedNode
) -> None:
    ranks.pod_changed("u1", POD, 1.0)
    ranks.nodes_changed([("n1", node)], 10.0)
    assert ranks.pod_changed("u1", None, 11.0) == [FORCED]
    assert ranks.kill(KillRequest(KEY, "n1", exited=True), 12.0) == TERMINATED


def test_where_the_node_answers_its_kubelet_confirms_an_end_that_the_agent_reported(
    ranks: Ranks,
) -> None:
    ranks.pod_changed("u1", POD, 1.0)
    assert ranks.kill(KillRequest(KEY, "n1", exited=True), 2.0) == [DeletePod(KEY, "u1")]
    assert ranks.due() == math.inf
    assert ranks.pod_changed("u1", OVER, 3.0) == TERMINATED


def test_a_death_on_a_silent_node_is_believed_some_time_after_the_node_is_back(
    ranks: Ranks,
) -> None:
    ranks.pod_changed("u1", POD, 1.0)
    ranks.nodes_changed([("n1", SILENT)], 10.0)
    ranks.pod_changed("u1", None, 20.0)
    assert ranks.nodes_changed([("n1", WELL)], 30.0) == []
    assert ranks.tick(34.0) == []
    assert ranks.tick(35.0) == TERMINATED


def test_what_a_node_says_after_it_is_back_is_believed(ranks: Ranks) -> None:
    ranks.pod_changed("u1", POD, 1.0)
    ranks.nodes_changed([("n1", SILENT)], 10.0)
    ranks.nodes_changed([("n1", WELL)], 30.0)
    assert ranks.pod_changed("u1", OVER, 31.0) == TERMINATED


def test_a_node_that_was_removed_has_no_ranks(ranks: Ranks) -> None:
    ranks.pod_changed("u1", POD, 1.0)
    ranks.nodes_changed([("n1", SILENT)], 10.0)
    ranks.pod_changed("u1", None, 20.0)
    assert ranks.nodes_changed([("n1", None)], 30.0) == TERMINATED


def test_a_killed_rank_on_a_dead_node_is_deleted_by_force_after_the_fence(ranks: Ranks) -> None:
    ranks.pod_changed("u1", POD, 1.0)
    ranks.nodes_changed([("n1", SILENT)], 10.0)
    assert ranks.kill(KillRequest(KEY, "n1"), 1.0) == [DeletePod(KEY, "u1")]
    assert ranks.pod_changed("u1", replace(POD, deleting=True), 11.0) == []
    assert ranks.due() == 120.0
    assert ranks.tick(120.0) == [DeletePod(KEY, "u1", force=True)]
    assert ranks.tick(121.0) == []
    assert ranks.tick(130.0) == [DeletePod(KEY, "u1", force=True)]
    assert ranks.pod_changed("u1", None, 131.0) == TERMINATED


def test_time_proves_nothing_where_agents_are_never_fenced() -> None:
    ranks = Ranks(Nodes(replace(TIMEOUTS, fence_after=0.0)), TIMEOUTS)
    ranks.nodes_changed([("n1", SILENT)], 0.0)
    ranks.pod_changed("u1", POD, 1.0)
    ranks.pod_changed("u1", None, 2.0)
    assert ranks.due() == math.inf


def test_killing_what_does_not_exist_asks_the_cluster_and_says_that_it_is_gone(
    ranks: Ranks,
) -> None:
    assert ranks.kill(KillRequest(KEY, "n1", preempted=True), 1.0) == [
        DeletePod(KEY, preempted=True)
    ]
    assert ranks.pod_missing(KEY, 1.0) == TERMINATED


def test_what_a_server_finds_missing_on_a_silent_node_waits_for_the_fence(ranks: Ranks) -> None:
    """The server was restarted, and the pod was deleted by force while no server watched it."""
    ranks.nodes_changed([("n1", SILENT)], 10.0)
    ranks.kill(KillRequest(KEY, "n1"), 1.0)
    assert ranks.pod_missing(KEY, 11.0) == []
    assert ranks.tick(120.0) == TERMINATED


UNSEEN = [  # whether it may run, the state of its node, when it counts as terminated
    pytest.param(True, WELL, 7.0, id="it may run"),
    pytest.param(True, SILENT, 110.0, id="it may run on a node that is silent"),
    pytest.param(True, None, 1.0, id="it may run, but its node was removed"),
    pytest.param(False, WELL, 1.0, id="it was never made, or has ended"),
]


@pytest.mark.parametrize(("ran", "node", "gone_at"), UNSEEN)
def test_a_rank_that_a_server_never_saw_is_gone_when_nothing_of_it_can_run(
    ran: bool, node: ObservedNode | None, gone_at: float
) -> None:
    """The server was started again, and there is no pod of what the store knows."""
    ranks = Ranks(Nodes(TIMEOUTS), TIMEOUTS)
    ranks.nodes_changed([("n1", node)], 0.0)
    assert ranks.kill(KillRequest(KEY, "n1", ran=ran), 0.0) == [DeletePod(KEY)]
    done = ranks.pod_missing(KEY, 1.0)
    assert done == ([] if gone_at > 1.0 else TERMINATED)
    assert done or ranks.due() == gone_at
    assert done or ranks.tick(gone_at) == TERMINATED


def test_a_pod_that_is_over_is_gone_at_once_whatever_the_store_knows(ranks: Ranks) -> None:
    assert ranks.kill(KillRequest(KEY, "n1", ran=True), 1.0) == [DeletePod(KEY)]
    assert ranks.pod_changed("u1", OVER, 1.0) == TERMINATED


# Nodes.


def test_a_silent_node_takes_nothing_new_and_is_lost_later() -> None:
    nodes = Nodes(TIMEOUTS)
    nodes.observe("n1", SILENT, 5.0)
    assert [*nodes.deadlines()] == [15.0]
    (soon,) = nodes.now(14.0)
    assert (soon.state, soon.held, soon.usable) == (NodeState.READY, "not ready: silent", False)
    (late,) = nodes.now(15.0)
    assert (late.state, late.reason) == (NodeState.NOT_READY, "not ready: silent")


NEWS = st.lists(
    st.one_of(
        st.sampled_from(["well", "silent", "pod", "over", "gone", "kill", "missing", "removed"]),
        st.floats(0.5, 60.0),
    ),
    max_size=25,
)


@given(news=NEWS)
def test_whatever_happens_a_rank_that_was_killed_is_gone_once_its_node_is_well(
    news: list[str | float],
) -> None:
    ranks, now, told = Ranks(Nodes(TIMEOUTS), TIMEOUTS), 0.0, 0
    ranks.nodes_changed([("n1", WELL)], now)

    def do(what: str) -> list[Action]:
        match what:
            case "well" | "silent":
                return ranks.nodes_changed([("n1", WELL if what == "well" else SILENT)], now)
            case "pod" | "over":
                return ranks.pod_changed("u1", POD if what == "pod" else OVER, now)
            case "gone":
                return ranks.pod_changed("u1", None, now)
            case "kill":
                return ranks.kill(KillRequest(KEY, "n1"), 1.0)
            case "missing":
                return ranks.pod_missing(KEY, now)
        return ranks.nodes_changed([("n1", None)], now)

    for what in [*news, "kill", "well", "gone", "missing", 60.0]:
        done = do(what) if isinstance(what, str) else []
        if isinstance(what, float):
            now += what
            done = ranks.tick(now)
        told += sum(isinstance(d, Report) and isinstance(d.event, RankTerminated) for d in done)
    assert ranks.keys() == frozenset()
    assert ranks.due() == math.inf
    assert told >= 1
