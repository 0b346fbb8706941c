"""Labels of nodes: validation, audit rows, and concurrent changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hai.v1 import node_service_pb2 as npb
from hai_backend.api.nodes.labels import check, update_labels, watched_labels
from hai_backend.domain.errors import Invalid
from hai_backend.domain.node import Node
from hai_backend.store.base import AuditQuery

WATCHED = watched_labels(
    {"group_label": "pool", "topology_labels": ["site/leaf"], "namespace": "x"}
)
NOTHING: tuple[tuple[str, str], ...] = ()


def request(*remove: str, **labels: str) -> npb.LabelNodeRequest:
    return npb.LabelNodeRequest(name="n0", labels=labels, remove=remove)


def setting(key: str, value: str = "x") -> npb.LabelNodeRequest:
    return npb.LabelNodeRequest(name="n0", labels={key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("rack", "r7", id="plain"),
        pytest.param("a", "", id="no value"),
        pytest.param("example.org/Rack_7.b-c", "A.b_c-9", id="all that is allowed"),
        pytest.param(f"{'a' * 63}.{'b' * 63}/{'c' * 63}", "d" * 63, id="long"),
        pytest.param("nothai.dev/rack", "r7", id="a prefix that ends like ours"),
    ],
)
def test_valid_labels_are_accepted(key: str, value: str) -> None:
    check(setting(key, value), WATCHED)
    assert update_labels(NOTHING, setting(key, value)) == ((key, value),)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        pytest.param(setting(""), "1 to 63 letters", id="no key"),
        pytest.param(setting("a b"), "1 to 63 letters", id="blank"),
        pytest.param(setting("-a"), "1 to 63 letters", id="begins with a dash"),
        pytest.param(setting("a" * 64), "1 to 63 letters", id="long name"),
        pytest.param(setting("é"), "1 to 63 letters", id="not ASCII"),
        pytest.param(setting("/a"), "DNS name", id="empty prefix"),
        pytest.param(setting("Up/a"), "DNS name", id="prefix in capitals"),
        pytest.param(setting("a/b/c"), "DNS name", id="two slashes"),
        pytest.param(setting(f"{'a.' * 127}b/c"), "DNS name", id="long prefix"),
        pytest.param(setting("a", "b c"), "empty, or", id="blank in the value"),
        pytest.param(setting("a", "b\n"), "empty, or", id="line break in the value"),
        pytest.param(setting("a", "x" * 64), "empty, or", id="long value"),
        pytest.param(setting("hai.dev/group"), "kubectl label node", id="ours"),
        pytest.param(setting("node.kubernetes.io/x"), "kubectl label node", id="theirs"),
        pytest.param(setting("pool"), "is a label of the node", id="what the watcher reads"),
        pytest.param(request("site/leaf"), "is a label of the node", id="removing that"),
        pytest.param(request("a", a="b"), "both set and removed", id="both"),
        pytest.param(request(), "nothing to change", id="nothing"),
    ],
)
def test_invalid_labels_are_refused(wrong: npb.LabelNodeRequest, told: str) -> None:
    with pytest.raises(Invalid) as refused:
        check(wrong, WATCHED)
    assert told in str(refused.value)


def test_all_violations_are_reported_together() -> None:
    with pytest.raises(Invalid) as refused:
        check(request(**{"a b": "x", "pool": "c d"}), WATCHED)
    assert [v.field for v in refused.value.violations] == ["labels[a b]", *["labels[pool]"] * 2]


def test_number_of_labels_is_limited() -> None:
    full = tuple((f"k{i:02}", "") for i in range(64))
    assert len(update_labels(full, request("k00", new="x"))) == 64
    with pytest.raises(Invalid, match="65 labels"):
        update_labels(full, request(new="x"))


async def test_label_changes_reach_watches_and_the_audit(platform: Any) -> None:
    olga, ada = await platform.caller("olga"), await platform.caller("ada")
    await olga.nodes.LabelNode(request(rack="r7", old="x"))
    watch = ada.nodes.WatchNodes(npb.WatchNodesRequest())
    first = await watch.read()
    node = await olga.nodes.LabelNode(request("old", rack="r8"))
    assert dict(node.labels) == {"rack": "r8"}
    second = await watch.read()
    assert [(n.name, dict(n.labels)) for n in second.nodes] == [("n0", {"rack": "r8"})]
    assert first.version < second.version
    watch.cancel()
    rows = (await platform.store.audit(AuditQuery(method="LabelNode"))).rows
    assert [(row.actor, row.resource, row.what) for row in rows] == [
        ("olga", "n0", "old: 'x' -> none; rack: 'r7' -> 'r8'"),
        ("olga", "n0", "old: none -> 'x'; rack: none -> 'r7'"),
    ]


async def test_concurrent_label_changes_are_all_kept(platform: Any) -> None:
    olga = await platform.caller("olga")
    await asyncio.gather(
        *(olga.nodes.LabelNode(request(**{f"k{i}": "x"})) for i in range(5)),
        olga.nodes.CordonNode(npb.CordonNodeRequest(name="n0", reason="fan")),
        platform.cluster.update_nodes([Node("n0", gpus=4)]),
    )
    node = await olga.nodes.GetNode(npb.GetNodeRequest(name="n0"))
    assert (sorted(node.labels), node.cordoned) == (["k0", "k1", "k2", "k3", "k4"], True)
