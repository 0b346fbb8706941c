"""Lays out a map of nodes: for each group and zone a heading, then rows of cells as wide as the screen. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from hai.v1.node_pb2 import Node

CELL = 2
"""The width of a node without its name: a sign and a blank."""


@dataclass(frozen=True, slots=True)
class MapRow:
    """A heading, which has no names, or a row of nodes."""

    title: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MapPosition:
    """A row of the map and a cell in it."""

    row: int
    cell: int


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that puts n10 after n9."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((int(p), "") if p.isdecimal() else (-1, p) for p in parts)


def cell_for(nodes: Collection[Node], width: int, height: int) -> int:
    """Return the width of a node on the map: with its name if all nodes then fit the screen, else only its sign."""
    named = max((len(node.name) for node in nodes), default=0) + 2 * CELL
    return named if len(rows_of(nodes, width, named)) <= height else CELL


def rows_of(nodes: Iterable[Node], width: int, cell: int = CELL) -> list[MapRow]:
    """Return the rows of the map for a screen of that width."""
    ordered = sorted(nodes, key=lambda n: (n.group, natural(n.zone), natural(n.name)))
    rows: list[MapRow] = []
    for (group, zone), part in groupby(ordered, key=lambda n: (n.group, n.zone)):
        names = [node.name for node in part]
        if rows:
            rows.append(MapRow())
        title = f"{group}#{zone}" if zone else group
        rows.append(MapRow(f"{title} ({len(names)})"))
        per_row = max(1, width // cell)
        rows += (MapRow(names=tuple(names[i : i + per_row])) for i in range(0, len(names), per_row))
    return rows


def position_of(rows: Sequence[MapRow], name: str) -> MapPosition | None:
    """Return the position of a node; None if it is not on the map."""
    for number, row in enumerate(rows):
        if name in row.names:
            return MapPosition(number, row.names.index(name))
    return None


def beside(rows: Sequence[MapRow], position: MapPosition, down: int, right: int) -> MapPosition:
    """Return the position that an arrow key leads to.

    Sideways moves continue in the next row, vertical moves skip headings.
    """
    if down:
        return _move_vertically(rows, position, down)
    cells = [(n, i) for n, row in enumerate(rows) for i in range(len(row.names))]
    index = cells.index((position.row, position.cell)) + right
    return MapPosition(*cells[max(0, min(index, len(cells) - 1))])


def _move_vertically(rows: Sequence[MapRow], position: MapPosition, down: int) -> MapPosition:
    filled = [n for n, row in enumerate(rows) if row.names]
    index = filled.index(position.row) + down
    row = filled[max(0, min(index, len(filled) - 1))]
    return MapPosition(row, min(position.cell, len(rows[row].names) - 1))
