"""What people type to label nodes, as kubectl takes it: `rack=r7` sets a label, `rack-` removes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hai.v1.node_pb2 import Node


@dataclass(frozen=True, slots=True)
class LabelPatch:
    """What was typed; `rest` are the words that are neither."""

    labels: Mapping[str, str]
    remove: tuple[str, ...]
    rest: tuple[str, ...]


def relabelling(words: Iterable[str]) -> LabelPatch:
    """Sort the words."""
    labels: dict[str, str] = {}
    remove, rest = [], []
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            labels[key] = value
        elif word.endswith("-"):
            remove.append(word.removesuffix("-"))
        else:
            rest.append(word)
    return LabelPatch(labels, tuple(remove), tuple(rest))


def edited(node: Node, line: str) -> LabelPatch:
    """What makes a node's labels those of a line that was made of them by `told`, and then changed."""
    found = relabelling(line.replace(",", " ").split())
    wanted = {**dict.fromkeys(found.rest, ""), **found.labels}
    labels = {key: value for key, value in wanted.items() if node.labels.get(key) != value}
    gone = [key for key in node.labels if key not in wanted and key not in found.remove]
    return LabelPatch(labels, (*found.remove, *gone), ())


def told(node: Node) -> str:
    """`gpu=h100 rack=r7`, by name; a label without a value is its name."""
    return " ".join(
        f"{key}={value}" if value else key for key, value in sorted(node.labels.items())
    )


def has(node: Node, wanted: str) -> bool:
    """Whether a node has the label `KEY`, or `KEY=VALUE`."""
    key, equals, value = wanted.partition("=")
    return key in node.labels and (not equals or node.labels[key] == value)
