"""Drops packets with nftables, on loopback or in network namespaces that act as nodes. Needs root.

Unlike the proxy, this shows what TCP does without acknowledgements: connects hang, and the kernel repeats packets with
growing pauses, so a connection recovers later than the network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from tests.silence.network.proxy import BOTH, Direction

_RULES = {
    Direction.FORTH: "add rule inet {table} output tcp dport {port} drop",
    Direction.BACK: "add rule inet {table} input tcp sport {port} drop",
}
_CHAINS = "add chain inet {table} {hook} {{ type filter hook {hook} priority 0; }}"


def require_namespaces() -> None:
    """Skip the test, with the reason, if packets cannot be dropped here."""
    if os.getuid() != 0:
        pytest.skip("only root may make network namespaces and drop packets")
    for tool, package in (("ip", "iproute2"), ("nft", "nftables")):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no `{tool}` here: apt-get install {package}")
    probe = f"hai-probe-{uuid.uuid4().hex[:6]}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode == 0:
        made = _run("nft", "list", "ruleset", inside=probe, check=False)
        subprocess.run(["ip", "netns", "del", probe], check=True)
    if made.returncode != 0:
        pytest.skip(f"this machine allows no network namespaces with nftables: {made.stderr}")


class Packets:
    """The packets to and from a server's port in a network namespace, by default the current one. Use `packets`."""

    def __init__(self, port: int, namespace: str = "") -> None:
        self._port = port
        self._namespace = namespace
        self._table = f"hai_{uuid.uuid4().hex[:8]}"

    def drop(self, *directions: Direction) -> None:
        """Drop all packets from now on, by default in both directions."""
        rules = [f"add table inet {self._table}"]
        rules += [_CHAINS.format(table=self._table, hook=hook) for hook in ("input", "output")]
        rules += [
            _RULES[way].format(table=self._table, port=self._port) for way in directions or BOTH
        ]
        self._nft("\n".join(rules))

    def heal(self) -> None:
        self._nft(f"add table inet {self._table}\ndelete table inet {self._table}")

    def _nft(self, text: str) -> None:
        _run("nft", "-f", "-", inside=self._namespace, text=text)


@contextmanager
def packets(port: int, namespace: str = "") -> Iterator[Packets]:
    made = Packets(port, namespace)
    try:
        yield made
    finally:
        made.heal()


@dataclass(frozen=True, slots=True)
class Network:
    """A switch: the machine that the test runs on has `address` there, and each node a namespace of its own."""

    address: str
    nodes: Sequence[str]

    def prefix(self, node: int) -> tuple[str, ...]:
        """Return the words that precede a command to run it on a node."""
        return ("ip", "netns", "exec", self.nodes[node])


@contextmanager
def network(nodes: int) -> Iterator[Network]:
    """Nothing is left of it afterwards."""
    name = uuid.uuid4().hex[:6]
    net = f"10.213.{int(name, 16) % 256}"
    with ExitStack() as stack:
        bridge = f"hai{name}"
        _run("ip", "link", "add", bridge, "type", "bridge")
        stack.callback(_run, "ip", "link", "del", bridge)
        _run("ip", "address", "add", f"{net}.1/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        made = [_node(stack, f"hai-{name}-{i}", bridge, f"{net}.{i + 2}/24") for i in range(nodes)]
        yield Network(f"{net}.1", made)


def _node(stack: ExitStack, namespace: str, bridge: str, address: str) -> str:
    """Create a network namespace that acts as a node, connected to the bridge."""
    _run("ip", "netns", "add", namespace)
    stack.callback(_run, "ip", "netns", "del", namespace)
    near = f"h{uuid.uuid4().hex[:10]}"
    _run("ip", "link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    _run("ip", "link", "set", near, "master", bridge, "up")
    _run("ip", "address", "add", address, "dev", "eth0", inside=namespace)
    for device in ("lo", "eth0"):
        _run("ip", "link", "set", device, "up", inside=namespace)
    return namespace


def _run(
    *command: str, inside: str = "", text: str = "", check: bool = True
) -> subprocess.CompletedProcess[str]:
    prefix = ("ip", "netns", "exec", inside) if inside else ()
    done = subprocess.run([*prefix, *command], input=text, capture_output=True, text=True)
    assert not check or done.returncode == 0, (command, done.stderr)
    return done
