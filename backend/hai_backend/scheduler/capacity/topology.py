"""Chooses empty nodes by network topology, so that a gang spans few switches and large domains stay unbroken.

A node's topology names its leaf switch first, then wider domains. A gang takes the smallest domain with enough empty
nodes (best fit), and in it as few leaf switches as possible.
"""

from __future__ import annotations

from collections.abc import Mapping

Domain = tuple[str, ...]


def choose_leaves(empty: Mapping[Domain, int], count: int) -> list[tuple[Domain, int]]:
    """Return how many nodes to take of which leaf; `empty` counts the empty nodes by topology, at least `count`."""
    if len(empty) == 1:
        return [(domain, count) for domain in empty]
    remaining = _smallest_domain(empty, count)
    chosen: list[tuple[Domain, int]] = []
    while count:
        domain = _leaf(remaining, count)
        number = min(count, remaining.pop(domain))
        chosen.append((domain, number))
        count -= number
    return chosen


def _smallest_domain(empty: Mapping[Domain, int], count: int) -> dict[Domain, int]:
    for depth in range(max(map(len, empty))):
        sums: dict[Domain, int] = {}
        for domain, number in empty.items():
            if domain[depth:]:
                sums[domain[depth:]] = sums.get(domain[depth:], 0) + number
        fitting = [(number, domain) for domain, number in sums.items() if number >= count]
        if fitting:
            _, best = min(fitting)
            return {domain: number for domain, number in empty.items() if domain[depth:] == best}
    return dict(empty)


def _leaf(remaining: Mapping[Domain, int], count: int) -> Domain:
    """Return the leaf with the fewest empty nodes that has enough, else the leaf with the most."""
    fitting = [(number, domain) for domain, number in remaining.items() if number >= count]
    if fitting:
        return min(fitting)[1]
    return min((-number, domain) for domain, number in remaining.items())[1]
