"""Parses labels of nodes in the syntax of kubectl: `rack=r7` sets a label, `rack-` removes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hai.v1.node_pb2 import Node


@dataclass(frozen=True, slots=True)
class LabelPatch:
    """Labels to set and to remove; `other_arguments` are the words that are neither."""

    labels: Mapping[str, str]
    remove: tuple[str, ...]
    other_arguments: tuple[str, ...]


def parse_label_patch(arguments: Iterable[str]) -> LabelPatch:
    """Return the patch that a list of words describes."""
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


def parse_edited_labels(node: Node, line: str) -> LabelPatch:
    """Return the patch that turns the labels of the node into those of a line that the user edited.

    The line began as the text of `labels_text`; a word without `=` is a label without a value.
    """
    patch = parse_label_patch(line.replace(",", " ").split())
    requested = {**dict.fromkeys(patch.other_arguments, ""), **patch.labels}
    labels = {key: value for key, value in requested.items() if node.labels.get(key) != value}
    removed = [key for key in node.labels if key not in requested and key not in patch.remove]
    return LabelPatch(labels, (*patch.remove, *removed), ())


def labels_text(node: Node) -> str:
    """Return the labels sorted by name: `gpu=h100 rack=r7`. A label without a value is only its name."""
    return " ".join(
        f"{key}={value}" if value else key for key, value in sorted(node.labels.items())
    )


def has_label(node: Node, requested: str) -> bool:
    """Return whether the node has the label `KEY` or `KEY=VALUE`."""
    key, equals, value = requested.partition("=")
    return key in node.labels and (not equals or node.labels[key] == value)
