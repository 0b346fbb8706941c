"""Reads YAML text into a tree with positions. No object is ever constructed from a tag."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from hai.client.taskfile.tree import (
    MAX_BYTES,
    MAX_DEPTH,
    Budget,
    Entry,
    Items,
    Kind,
    Malformed,
    Mark,
    Scalar,
    Table,
    Tree,
)

Composed = TypeVar("Composed")

_CORE = "tag:yaml.org,2002:"
_KINDS: dict[str, Kind] = {
    "str": "text",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "null": "null",
    "timestamp": "text",  # a date stays the text that was written
    "merge": "text",
    "value": "text",
}


def parse(text: str) -> Tree:
    """Return the tree of one yaml document. Raises Malformed."""
    node = _compose(text, lambda: yaml.compose(text, Loader=yaml.SafeLoader))
    return Table(()) if node is None else _Builder().tree(node, 0)


def parse_all(text: str) -> Sequence[Tree]:
    """Return the trees of all documents that are not empty. Raises Malformed."""
    nodes = _compose(text, lambda: list(yaml.compose_all(text, Loader=yaml.SafeLoader)))
    trees = [_Builder().tree(node, 0) for node in nodes]
    return [tree for tree in trees if not (isinstance(tree, Scalar) and tree.value is None)]


def _compose(text: str, compose: Callable[[], Composed]) -> Composed:
    """Return the result of a PyYAML composer. Raises Malformed for its errors and for large documents."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise Malformed(f"the document is larger than {MAX_BYTES // 1024} KiB")
    try:
        _check_depth(text)
        return compose()
    except yaml.MarkedYAMLError as error:
        raise Malformed(_syntax_message(error), _mark(error.problem_mark)) from error
    except yaml.reader.ReaderError as error:
        raise Malformed(_character_message(error), _position(text, error.position)) from error


def _check_depth(text: str) -> None:
    """Raise Malformed for deep nesting, before the recursive composer reads it."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise Malformed(
                f"the document is nested deeper than {MAX_DEPTH} levels", _mark(event.start_mark)
            )


class _Builder:
    """Builds the tree of one document from the nodes of PyYAML."""

    def __init__(self) -> None:
        self._budget = Budget()
        self._scalars = yaml.SafeLoader("")

    def tree(self, node: Node, depth: int) -> Tree:
        mark = _mark(node.start_mark)
        self._budget.spend(depth, mark)
        if isinstance(node, ScalarNode):
            return self._scalar(node, mark)
        if isinstance(node, MappingNode):
            _expect_tag(node, "map")
            return Table(tuple(self._entries(node, depth)), mark)
        _expect_tag(node, "seq")
        return Items(tuple(self.tree(child, depth + 1) for child in node.value), mark)

    def _scalar(self, node: ScalarNode, mark: Mark) -> Scalar:
        kind = _KINDS.get(node.tag.removeprefix(_CORE)) if node.tag.startswith(_CORE) else None
        if kind is None:
            raise Malformed(f"the yaml tag {node.tag} is not accepted", mark)
        if kind == "text":
            return Scalar(kind, node.value, node.value, mark)
        try:
            # only the tags int, float, bool and null arrive here
            value = self._scalars.construct_object(node)
        except (ValueError, KeyError, yaml.YAMLError) as error:
            raise Malformed(f"{node.value!r} is not a {kind}", mark) from error
        return Scalar(kind, node.value, value, mark)

    def _entries(self, node: MappingNode, depth: int) -> list[Entry]:
        """Return the entries of a mapping, with those that `<<` merges into it."""
        own_entries: list[Entry] = []
        merged: list[Entry] = []
        for key, value in node.value:
            if key.tag == f"{_CORE}merge":
                merged += self._merged(value, depth)
            else:
                own_entries.append(
                    Entry(_key(key), self.tree(value, depth + 1), _mark(key.start_mark))
                )
        own_keys = {entry.key for entry in own_entries}
        for entry in merged:  # own keys take precedence, then keys of earlier merges
            if entry.key not in own_keys:
                own_keys.add(entry.key)
                own_entries.append(entry)
        return own_entries

    def _merged(self, node: Node, depth: int) -> list[Entry]:
        sources = node.value if isinstance(node, SequenceNode) else [node]
        found: list[Entry] = []
        for source in sources:
            if not isinstance(source, MappingNode):
                raise Malformed("only a mapping can be merged with <<", _mark(source.start_mark))
            self._budget.spend(depth + 1, _mark(source.start_mark))
            found += self._entries(source, depth + 1)
        return found


def _key(node: Node) -> str:
    if not isinstance(node, ScalarNode) or not node.tag.startswith(_CORE):
        raise Malformed("a key must be a word, not a list or mapping", _mark(node.start_mark))
    return str(node.value)


def _expect_tag(node: Node, tag: str) -> None:
    if node.tag != _CORE + tag:
        raise Malformed(f"the yaml tag {node.tag} is not accepted", _mark(node.start_mark))


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1) if mark else Mark()


def _position(text: str, index: int) -> Mark:
    before = text[:index]
    return Mark(before.count("\n") + 1, index - before.rfind("\n"))


def _syntax_message(error: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (error.context, error.problem) if part]
    return "not valid yaml: " + ", ".join(parts)


def _character_message(error: yaml.reader.ReaderError) -> str:
    character = error.character
    code = ord(character) if isinstance(character, str) else character
    return f"not valid yaml: the character U+{code:04X} must be written as an escape in quotes"
