"""What people type to label nodes, as kubectl takes it: `rack=r7` sets a label, `rack-` removes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hai.v1.node_pb2 import Node


@dataclass(frozen=True, slots=True)
class LabelPatch:
    """What was typed; `other_arguments` are the words that are neither."""

    labels: Mapping[str, str]
    remove: tuple[str, ...]
    other_arguments: tuple[str, ...]


def parse_label_patch(arguments: Iterable[str]) -> LabelPatch:
    """Sort the words."""
    labels: dict[str, str] = {}
    remove, other_arguments = [], []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals:
            labels[key] = value
        elif argument.endswith("-"):
            remove.append(argument.removesuffix("-"))
        else:
            other_arguments.append(argument)
    return LabelPatch(labels, tuple(remove), tuple(other_arguments))


def edited(node: Node, line: str) -> LabelPatch:
    """What makes a node's labels those of a line that was made of them by `labels_of`, and then changed."""
    found = parse_label_patch(line.replace(",", " ").split())
    requested = {**dict.fromkeys(found.other_arguments, ""), **found.labels}
    labels = {key: value for key, value in requested.items() if node.labels.get(key) != value}
    removed = [key for key in node.labels if key not in requested and key not in found.remove]
    return LabelPatch(labels, (*found.remove, *removed), ())


def labels_of(node: Node) -> str:
    """`gpu=h100 rack=r7`, by name; a label without a value is its name."""
    return " ".join(
        f"{key}={value}" if value else key for key, value in sorted(node.labels.items())
    )


def has(node: Node, requested: str) -> bool:
    """Whether a node has the label `KEY`, or `KEY=VALUE`."""
    key, equals, value = requested.partition("=")
    return key in node.labels and (not equals or node.labels[key] == value)
