"""Which of the empty nodes: a gang talks most to itself, so it should cross few switches and leave large holes whole.

A node's topology names its leaf switch first, then what is wider. The smallest domain with enough empty nodes is taken
(best fit); when it has several leaves, the fewest of them.
"""

from __future__ import annotations

from collections.abc import Mapping

Place = tuple[str, ...]


def spread(empty: Mapping[Place, int], count: int) -> list[tuple[Place, int]]:
    """How many nodes to take at which place; `empty` has at least `count`."""
    if len(empty) == 1:
        return [(place, count) for place in empty]
    left = _smallest_domain(empty, count)
    taken: list[tuple[Place, int]] = []
    while count:
        place = _leaf(left, count)
        take = min(count, left.pop(place))
        taken.append((place, take))
        count -= take
    return taken


def _smallest_domain(empty: Mapping[Place, int], count: int) -> dict[Place, int]:
    for depth in range(max(map(len, empty))):
        sums: dict[Place, int] = {}
        for place, number in empty.items():
            if place[depth:]:
                sums[place[depth:]] = sums.get(place[depth:], 0) + number
        fitting = [(number, domain) for domain, number in sums.items() if number >= count]
        if fitting:
            _, best = min(fitting)
            return {place: number for place, number in empty.items() if place[depth:] == best}
    return dict(empty)


def _leaf(left: Mapping[Place, int], count: int) -> Place:
    """The fullest leaf that has room for all, else the emptiest."""
    fitting = [(number, place) for place, number in left.items() if number >= count]
    if fitting:
        return min(fitting)[1]
    return min((-number, place) for place, number in left.items())[1]
